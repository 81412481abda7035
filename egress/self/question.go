package self

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
)

// A question is what may be checked: a URL, or its parts.
type question struct {
	URL      string `json:"url"`
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	Method   string `json:"method"`
	Path     string `json:"path"`
}

// request brings the question into the evaluator's form.
func (q question) request() (policies.Request, error) {
	r := policies.Request{Stage: policies.StageConnect, Protocol: policies.HTTPS}
	if q.URL != "" {
		if err := q.split(); err != nil {
			return r, err
		}
	}
	if q.Protocol != "" {
		p, ok := policies.ParseProtocol(q.Protocol)
		if !ok {
			return r, invalid("protocol", "is none of https, http, tls, tcp, ssh, postgres")
		}
		r.Protocol = p
	}
	switch a, err := netip.ParseAddr(q.Host); {
	case q.Host == "":
		return r, invalid("host", "is missing")
	case err == nil:
		r.Addr = a.Unmap()
	default:
		if r.Host, err = hostname.Normalize(q.Host); err != nil {
			return r, invalid("host", "is no host name and no address")
		}
	}
	if r.Port = q.Port; r.Port == 0 {
		r.Port = r.Protocol.Port()
	}
	if r.Port == 0 {
		return r, invalid("port", "is missing; this protocol has none of its own")
	}
	return r, q.inside(&r)
}

func (q *question) split() error {
	u, err := url.Parse(q.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return invalid("url", "is no http or https URL without userinfo")
	}
	if q.Host != "" || q.Port != 0 || q.Path != "" || q.Protocol != "" {
		return invalid("url", "and its parts are both given")
	}
	q.Host, q.Protocol, q.Path = u.Hostname(), u.Scheme, u.EscapedPath()
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return invalid("url", "has a port outside 1 to 65535")
		}
		q.Port = uint16(n)
	}
	return nil
}

// inside adds method and path, where the question has them.
func (q question) inside(r *policies.Request) error {
	if q.Method == "" && q.Path == "" && q.URL == "" {
		return nil
	}
	switch err := r.Ask(q.Method, q.Path); {
	case errors.Is(err, policies.ErrNoInside):
		return invalid("method", "and path are http's and https's only")
	case err != nil:
		return invalid("path", "can be read in more than one way")
	}
	return nil
}

// fresh returns what is judged by now.
func (h *Handler) fresh(b egress.Binding) (*policies.Snapshot, *policies.Floor, error) {
	s, revision, err := h.cfg.Policies.Snapshot(b)
	floor := h.cfg.Floor()
	if err != nil || revision < b.MinRevision || floor == nil {
		return nil, nil, errStale
	}
	return s, floor, nil
}

func (h *Handler) check(w http.ResponseWriter, r *http.Request, b egress.Binding) error {
	var q question
	if err := read(w, r, &q); err != nil {
		return err
	}
	req, err := q.request()
	if err != nil {
		return err
	}
	s, floor, err := h.fresh(b)
	if err != nil {
		return err
	}
	req.Now = h.cfg.Now()
	v := floor.Evaluate(b.Org, s, &req)
	out := struct {
		Verdict     string `json:"verdict"`
		Reason      string `json:"reason"`
		Rule        string `json:"rule,omitempty"`
		Guidance    string `json:"agent_guidance,omitempty"`
		Requestable bool   `json:"requestable"`
		Destination string `json:"destination"`
		Note        string `json:"note,omitempty"`
	}{Verdict: v.Action.String(), Reason: v.Reason.String(), Rule: v.Rule, Requestable: v.Requestable, Destination: destination(req.Host, addrText(req.Addr), req.Port)}
	if !v.Allowed() {
		out.Guidance = v.Guidance()
	} else if req.Host != "" {
		out.Note = "The addresses of the name are judged when it is dialled."
	}
	write(w, http.StatusOK, "application/json", out)
	return nil
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func destination(host, addr string, port uint16) string {
	to := host
	if to == "" {
		to = addr
	}
	if port == 0 {
		return to
	}
	return to + ":" + strconv.Itoa(int(port))
}
