package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
	"portreeve.dev/sso"
)

type checkIn struct {
	Body struct {
		URL      string          `json:"url,omitempty" maxLength:"8192" doc:"https://host/path, instead of host, port, protocol and path."`
		Host     string          `json:"host,omitempty" maxLength:"300" doc:"A name or an address."`
		Port     int             `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"Default: the protocol's."`
		Protocol string          `json:"protocol,omitempty" doc:"https, http, tls, tcp, ssh or postgres; default https."`
		Method   string          `json:"method,omitempty" maxLength:"40" doc:"With it the request is judged, else the connection."`
		Path     string          `json:"path,omitempty" maxLength:"8192"`
		Sandbox  string          `json:"sandbox,omitempty" maxLength:"64" doc:"Judge by this sandbox's policy."`
		Policy   string          `json:"policy,omitempty" maxLength:"63" doc:"Judge by this policy, or by the ceiling alone. Default: the org's default."`
		Document json.RawMessage `json:"document,omitempty" doc:"A draft, an object or a string of JSON or YAML, judged in the place of the named policy if one is given, else of the ceiling."`
	}
}

type checkOut struct {
	Body struct {
		Verdict     string          `json:"verdict" enum:"allow,deny"`
		Reason      string          `json:"reason"`
		Rule        string          `json:"rule,omitempty"`
		Layer       string          `json:"layer,omitempty" doc:"ceiling, policy:NAME or floor."`
		Version     int64           `json:"version"`
		Guidance    string          `json:"agent_guidance,omitempty"`
		Message     string          `json:"message,omitempty" doc:"The deny rule's own words."`
		Requestable bool            `json:"requestable" doc:"What is missing is only a rule."`
		Request     checkedRequest  `json:"request" doc:"What was judged, in normal form."`
		Explanation json.RawMessage `json:"explanation" doc:"Each layer in the order it is asked, the floor first, and each rule that mattered."`
	}
}

type checkedRequest struct {
	Stage    string `json:"stage"`
	Host     string `json:"host,omitempty"`
	Address  string `json:"address,omitempty"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	Method   string `json:"method,omitempty"`
	Path     string `json:"path,omitempty"`
}

func (s *Server) checkRoutes() {
	route(s, sso.ScopeRead, huma.Operation{OperationID: "check-policy", Method: http.MethodPost, Path: "/policies/check",
		Summary: "Would this be allowed?", Description: "Judged by the edge's own evaluator. A name's address is judged only when it is dialled.", Tags: []string{"policies"}}, s.check)
}

func (s *Server) check(ctx context.Context, c *caller, in *checkIn) (*checkOut, error) {
	r, err := s.question(in)
	if err != nil {
		return nil, err
	}
	l, err := s.layersOf(ctx, c, in.Body.Sandbox, in.Body.Policy)
	if err != nil {
		return nil, err
	}
	if in.Body.Document != nil {
		if l, err = s.drafted(l, in.Body.Policy, in.Body.Document); err != nil {
			return nil, err
		}
	}
	snapshot, err := l.compile()
	if err != nil {
		return nil, err
	}
	floor, err := s.FloorNow(ctx)
	if err != nil {
		return nil, err
	}
	explained := floor.Explain(c.org(), snapshot, &r)
	explanation, err := json.Marshal(explained)
	if err != nil {
		return nil, err
	}
	out, v := &checkOut{}, explained.Verdict
	out.Body.Verdict, out.Body.Reason, out.Body.Rule, out.Body.Layer, out.Body.Version = v.Action.String(), string(v.Reason), v.Rule, v.Layer, v.Version
	out.Body.Message, out.Body.Requestable, out.Body.Explanation = v.Message, v.Requestable, explanation
	if !v.Allowed() {
		out.Body.Guidance = v.Reason.Guidance()
	}
	out.Body.Request = checkedRequest{Stage: r.Stage.String(), Host: r.Host, Port: r.Port, Protocol: r.Protocol.String(), Method: r.Method, Path: r.Path}
	if r.Host == "" {
		out.Body.Request.Address = r.Addr.String()
	}
	return out, nil
}

// drafted puts a draft in the place of the layer that it would replace.
func (s *Server) drafted(l layers, policy string, document json.RawMessage) (layers, error) {
	d, err := s.readInside("document", document)
	if err != nil {
		return l, err
	}
	if policy != "" && policy != "ceiling" {
		l.named = &store.Policy{Name: policy, Document: d.normal}
	} else {
		l.ceiling = store.Policy{Document: d.normal}
	}
	return l, nil
}

// question reads what is asked into the evaluator's form.
func (s *Server) question(in *checkIn) (policies.Request, error) {
	b := in.Body
	r := policies.Request{Stage: policies.StageConnect, Now: s.Now(), Protocol: policies.HTTPS}
	host, port, path, protocol := b.Host, b.Port, b.Path, b.Protocol
	if b.URL != "" {
		u, err := url.Parse(b.URL)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
			return r, invalid("body.url", "must be an http or https URL without userinfo")
		}
		if host != "" || port != 0 || path != "" || protocol != "" {
			return r, invalid("body.url", "give the URL, or its parts, not both")
		}
		host, protocol, path = u.Hostname(), u.Scheme, u.EscapedPath()
		if p := u.Port(); p != "" {
			n, err := strconv.ParseUint(p, 10, 16)
			if err != nil || n == 0 {
				return r, invalid("body.url", "has a port outside 1 to 65535")
			}
			port = int(n)
		}
	}
	if host == "" {
		return r, invalid("body.host", "is missing; give a host or a url")
	}
	if protocol != "" {
		p, ok := policies.ParseProtocol(protocol)
		if !ok {
			return r, invalid("body.protocol", "must be https, http, tls, tcp, ssh or postgres")
		}
		r.Protocol = p
	}
	if err := hostOf(host, &r); err != nil {
		return r, err
	}
	if r.Port = uint16(port); port == 0 {
		r.Port = r.Protocol.Port()
	}
	if r.Port == 0 {
		return r, invalid("body.port", "is missing; this protocol has none of its own")
	}
	if b.Method == "" && (path == "" || b.URL != "") {
		return r, nil
	}
	return r, askInside(b.Method, path, &r)
}

func hostOf(host string, r *policies.Request) error {
	if a, err := netip.ParseAddr(host); err == nil {
		r.Addr = a.Unmap()
		return nil
	}
	name, err := hostname.Normalize(host)
	if err != nil {
		return invalid("body.host", "is not a host name or an address")
	}
	r.Host = name
	return nil
}

// askInside adds method and path to a question.
func askInside(method, path string, r *policies.Request) error {
	switch err := r.Ask(method, path); {
	case errors.Is(err, policies.ErrNoInside):
		return invalid("body.method", err.Error())
	case err != nil:
		return invalid("body.path", "can be read in more than one way")
	}
	return nil
}

// recorded turns a stored decision back into what was judged, now. False: it was not a policy's verdict.
func (s *Server) recorded(d store.Decision, now time.Time) (policies.Request, bool) {
	judged := []policies.Reason{policies.ReasonAllowed, policies.ReasonNoRule, policies.ReasonRuleDenied}
	if !slices.Contains(judged, policies.Reason(d.Reason)) {
		return policies.Request{}, false
	}
	r := policies.Request{Host: d.Host, Port: d.Port, Now: now}
	switch d.Layer {
	case "dns":
		r.Stage = policies.StageName
		return r, d.Host != ""
	case "http":
		r.Stage, r.Method, r.Path = policies.StageRequest, d.Method, d.Path
	default:
		r.Stage = policies.StageConnect
	}
	if d.Protocol != "" {
		r.Protocol, _ = policies.ParseProtocol(d.Protocol)
	}
	if r.Host == "" {
		a, err := netip.ParseAddr(d.Addr)
		if err != nil {
			return r, false
		}
		r.Addr = a.Unmap()
	}
	return r, true
}
