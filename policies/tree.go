package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A node is one value of a document, the same for JSON and YAML, so that both are read by the same strict rules.
type node struct {
	kind   kind
	text   string   // of a scalar, as written
	keys   []string // of an object
	values []*node  // of an object or a list
}

type kind string

const (
	kindNull   kind = "null"
	kindBool   kind = "a boolean"
	kindNumber kind = "a number"
	kindString kind = "a string"
	kindList   kind = "a list"
	kindObject kind = "an object"
)

// maxDepth is deeper than any document goes.
const maxDepth = 8

// readTree reads data as JSON if it begins with a brace, else as YAML.
func readTree(data []byte) (*node, error) {
	if len(data) > MaxBytes {
		return nil, &FieldError{Message: fmt.Sprintf("%d bytes are more than %d", len(data), MaxBytes)}
	}
	if !utf8.Valid(data) {
		return nil, &FieldError{Message: "not UTF-8"}
	}
	if isJSON(data) {
		return readJSON(data)
	}
	return readYAML(data)
}

func isJSON(data []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) }

func readJSON(data []byte) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	n, err := jsonNode(d, "", 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, &FieldError{Message: "something follows after the document"}
	}
	return n, nil
}

func jsonNode(d *json.Decoder, path string, depth int) (*node, error) {
	token, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, &FieldError{Path: path, Message: "the document ends too early"}
		}
		return nil, &FieldError{Path: path, Message: fmt.Sprintf("not JSON at byte %d: %v", d.InputOffset(), err)}
	}
	switch v := token.(type) {
	case nil:
		return &node{kind: kindNull}, nil
	case bool:
		return &node{kind: kindBool, text: fmt.Sprint(v)}, nil
	case json.Number:
		return &node{kind: kindNumber, text: v.String()}, nil
	case string:
		return &node{kind: kindString, text: v}, nil
	case json.Delim:
		n := &node{kind: kindList}
		if v == '{' {
			n.kind = kindObject
		}
		if depth >= maxDepth {
			return nil, tooDeep(path)
		}
		for d.More() {
			here := at(path, len(n.values))
			if n.kind == kindObject {
				key, err := d.Token()
				if err != nil {
					return nil, &FieldError{Path: path, Message: fmt.Sprintf("not JSON at byte %d: %v", d.InputOffset(), err)}
				}
				if here, err = n.key(path, key.(string)); err != nil {
					return nil, err
				}
			}
			value, err := jsonNode(d, here, depth+1)
			if err != nil {
				return nil, err
			}
			n.values = append(n.values, value)
		}
		if _, err := d.Token(); err != nil {
			return nil, &FieldError{Path: path, Message: fmt.Sprintf("not JSON at byte %d: %v", d.InputOffset(), err)}
		}
		return n, nil
	}
	return nil, &FieldError{Path: path, Message: "not JSON"}
}

func readYAML(data []byte) (*node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var root, more yaml.Node
	if err := d.Decode(&root); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &FieldError{Message: "the document is empty", Hint: "to deny everything, write rules: []"}
		}
		return nil, &FieldError{Message: "not " + strings.Replace(err.Error(), "yaml: ", "YAML: ", 1)}
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, &FieldError{Message: "something follows after the document"}
	}
	if root.Kind != yaml.DocumentNode || len(root.Content) != 1 {
		return nil, &FieldError{Message: "not a document"}
	}
	return yamlNode(root.Content[0], "", 0)
}

// YAML's own names of what a scalar is. What is not here (binary, merge, tags of others) is refused.
var yamlKinds = map[string]kind{
	"!!null": kindNull, "!!bool": kindBool, "!!int": kindNumber, "!!float": kindNumber,
	"!!str": kindString, "!!timestamp": kindString, "!!seq": kindList, "!!map": kindObject,
}

func yamlNode(y *yaml.Node, path string, depth int) (*node, error) {
	if y.Kind == yaml.AliasNode || y.Anchor != "" {
		return nil, &FieldError{Path: path, Message: "anchors and aliases are not read", Hint: "write the value out"}
	}
	k, ok := yamlKinds[y.ShortTag()]
	if !ok || y.Style&yaml.TaggedStyle != 0 {
		return nil, &FieldError{Path: path, Message: fmt.Sprintf("the tag %q is not read", y.ShortTag())}
	}
	n := &node{kind: k, text: y.Value}
	if y.Kind == yaml.ScalarNode {
		return n, nil
	}
	if depth >= maxDepth {
		return nil, tooDeep(path)
	}
	for i := 0; i < len(y.Content); i++ {
		here := at(path, len(n.values))
		if n.kind == kindObject {
			key := y.Content[i]
			if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Anchor != "" {
				return nil, &FieldError{Path: path, Message: fmt.Sprintf("the key in line %d is not a plain string", key.Line)}
			}
			var err error
			if here, err = n.key(path, key.Value); err != nil {
				return nil, err
			}
			i++
		}
		value, err := yamlNode(y.Content[i], here, depth+1)
		if err != nil {
			return nil, err
		}
		n.values = append(n.values, value)
	}
	return n, nil
}

// key enters the next key of an object and returns its path. A key that comes twice would let two readers see two documents.
func (n *node) key(path, name string) (string, error) {
	here := join(path, name)
	for _, before := range n.keys {
		if before == name {
			return "", &FieldError{Path: here, Message: "the key comes twice"}
		}
	}
	n.keys = append(n.keys, name)
	return here, nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// at is the path of the entry i of a list.
func at(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func tooDeep(path string) error { return &FieldError{Path: path, Message: "nested too deeply"} }
