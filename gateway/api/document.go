package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.yaml.in/yaml/v3"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
)

// A draftDocument is a document as it was sent, read and found right.
type draftDocument struct {
	document *policies.Document
	normal   json.RawMessage
	origin   store.Origin
	version  *int64 // that it says it replaces; nil: none
}

// readDocument reads a body, JSON or YAML.
func (s *Server) readDocument(body []byte) (draftDocument, error) {
	text, version := takeVersion(body)
	document, err := parseDocument(text, s.Now())
	if err != nil {
		return draftDocument{}, refuseDocument(err, body)
	}
	normal, err := json.Marshal(document)
	if err != nil {
		return draftDocument{}, err
	}
	d := draftDocument{document: document, normal: normal, version: version}
	if !json.Valid(body) { // then it is YAML, which may have comments
		d.origin.Source = string(body)
	}
	return d, nil
}

// readInside reads a document that is a part of a JSON body: an object, or a string with JSON or YAML in it.
func (s *Server) readInside(field string, raw json.RawMessage) (draftDocument, error) {
	text := []byte(raw)
	if len(raw) > 0 && raw[0] == '"' {
		var written string
		if json.Unmarshal(raw, &written) == nil {
			text = []byte(written)
		}
	}
	d, err := s.readDocument(text)
	if p, ok := err.(*Problem); ok {
		for i := range p.Errors {
			p.Errors[i].Location = "body." + field + strings.TrimPrefix(p.Errors[i].Location, "body")
		}
	}
	return d, err
}

// parseDocument reads a document that is to come into force.
func parseDocument(text []byte, now time.Time) (*policies.Document, error) {
	return policies.ParseAt(text, now)
}

// fieldsOfAnswers are what our answers put beside a document; they are taken out again, so that an answer can be sent back changed.
var fieldsOfAnswers = []string{"version", "revision", "warnings", "failed_tests"}

// takeVersion takes the version out of a JSON document, where our answers put it.
func takeVersion(body []byte) ([]byte, *int64) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields["version"] == nil {
		return body, nil
	}
	var version int64
	if json.Unmarshal(fields["version"], &version) != nil {
		return body, nil // the parser names it
	}
	for _, name := range fieldsOfAnswers {
		delete(fields, name)
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return body, nil
	}
	return rest, &version
}

type documentOut struct {
	ETag        string `header:"ETag"`
	ContentType string `header:"Content-Type"`
	Vary        string `header:"Vary"`
	Body        []byte
}

// documentOperation describes a route whose answer is a document.
func documentOperation(op huma.Operation) huma.Operation {
	op.SkipValidateBody = true // the language has a parser of its own
	rule := &huma.Schema{Type: "object", AdditionalProperties: true}
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		"application/json": {Schema: &huma.Schema{Type: "object", AdditionalProperties: true, Properties: map[string]*huma.Schema{
			"rules": {Type: "array", Items: rule}, "version": {Type: "integer"}}}},
		"application/yaml": {Schema: &huma.Schema{Type: "string"}},
	}}}
	return op
}

// FormIn says in which form a document is wanted.
type FormIn struct {
	Accept string `header:"Accept" hidden:"true"`
}

// yaml reports whether the client asked for YAML.
func (f *FormIn) yaml() bool {
	for one := range strings.SplitSeq(f.Accept, ",") {
		kind, _, _ := strings.Cut(one, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "application/yaml", "application/x-yaml", "text/yaml":
			return true
		case "application/json":
			return false
		}
	}
	return false
}

// changed is what an answer says of a change beside the document.
type changed struct {
	revision int64
	more     map[string]any
}

// answer writes a document: as YAML, the author's own text if it is kept, or as JSON, with the version before everything else.
func (f *FormIn) answer(p store.Policy, done changed) (*documentOut, error) {
	out := &documentOut{ETag: etag(p.Version), Vary: "Accept"}
	if f.yaml() {
		text := []byte(p.Source)
		if p.Source == "" {
			var err error
			if text, err = toYAML(p.Document); err != nil {
				return nil, err
			}
		}
		out.ContentType, out.Body = "application/yaml", text
		return out, nil
	}
	head := fmt.Sprintf(`{"version":%d`, p.Version)
	if done.revision > 0 {
		head += fmt.Sprintf(`,"revision":%d`, done.revision)
	}
	for _, name := range fieldsOfAnswers {
		if v, ok := done.more[name]; ok {
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			head += fmt.Sprintf(`,%q:%s`, name, text)
		}
	}
	rest := strings.TrimPrefix(strings.TrimSpace(string(p.Document)), "{")
	if !strings.HasPrefix(rest, "}") {
		head += ","
	}
	out.ContentType, out.Body = "application/json", []byte(head+rest+"\n")
	return out, nil
}

// toYAML writes a stored document as YAML.
func toYAML(document json.RawMessage) ([]byte, error) {
	d, err := policies.Parse(document)
	if err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	return policies.FormatYAML(d)
}

func writeYAML(n *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(n), e.Close()); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	return b.Bytes(), nil
}
