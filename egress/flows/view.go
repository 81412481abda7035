package flows

import (
	"cmp"
	"slices"
	"time"

	"portreeve.dev/policies"
)

// Bounds of a page and of what is told of one connection.
const (
	MaxPage  = 500  // connections
	maxViews = 2000 // with their parts, so that a page stays far below what a link carries
	maxParts = 100
)

// A Query chooses flows of one org; empty fields choose all.
type Query struct {
	Org     string `json:"org"`
	Sandbox string `json:"sandbox,omitempty"`
	Flow    string `json:"flow,omitempty"` // a connection, or a part of one
	Host    string `json:"host,omitempty"`
	Rule    string `json:"rule,omitempty"`
	After   string `json:"after,omitempty"` // the id that the page before ended with
	Limit   int    `json:"limit"`           // at most MaxPage
}

// A Page is a part of the list, ordered by id, which is the order in which the connections began.
type Page struct {
	Flows []View `json:"flows"`
	More  bool   `json:"more"` // others come after the last of these
}

// A View is what is known of a live connection, or of a request on one.
type View struct {
	ID          string     `json:"id"`
	Sandbox     string     `json:"sandbox_id"`
	Incarnation uint64     `json:"incarnation"`
	Decision    string     `json:"decision_id,omitempty"`
	Stage       string     `json:"stage"`             // connect until a request was judged, then request
	Level       string     `json:"level,omitempty"`   // identity that is known: http, sni, address
	Host        string     `json:"host,omitempty"`    // normal form
	Address     string     `json:"address,omitempty"` // dialled; or asked for, where there is no host
	Port        uint16     `json:"port"`
	Protocol    string     `json:"protocol,omitempty"`
	Method      string     `json:"method,omitempty"`
	Rule        string     `json:"rule,omitempty"`
	RuleLayer   string     `json:"rule_layer,omitempty"`
	Version     int64      `json:"policy_version"`
	Revision    uint64     `json:"policy_revision"`
	Since       time.Time  `json:"since"`
	BytesIn     int64      `json:"bytes_in"`  // to the sandbox, so far
	BytesOut    int64      `json:"bytes_out"` // from the sandbox, so far
	LastByte    *time.Time `json:"last_byte_at"`
	Opaque      bool       `json:"opaque"` // its bytes pass unseen
	Local       bool       `json:"local,omitempty"`
	Parts       []View     `json:"parts,omitempty"`       // requests that are under way; at most 100
	PartsTotal  int        `json:"parts_total,omitempty"` // all of them
}

// Page lists connections with what goes on within them. Flows of other orgs are not there.
func (t *Table) Page(q Query) Page {
	q.Limit = min(max(q.Limit, 1), MaxPage)
	whole, parts := t.chosen(q)
	slices.SortFunc(whole, func(a, b *entry) int { return cmp.Compare(a.ID, b.ID) })
	p, views := Page{Flows: []View{}}, 0
	for _, e := range whole {
		if len(p.Flows) == q.Limit || views > maxViews {
			p.More = true
			break
		}
		v := connectionView(e, parts[e.ID])
		views += 1 + len(v.Parts)
		p.Flows = append(p.Flows, v)
	}
	return p
}

// chosen returns the connections that match, and the parts of every connection that may.
func (t *Table) chosen(q Query) (whole []*entry, parts map[string][]*entry) {
	parts = make(map[string][]*entry)
	within := "" // the connection of the part that is asked for
	for _, e := range t.entries(func(f *Flow) bool {
		return f.Binding.Org == q.Org && (q.Sandbox == "" || f.Binding.Sandbox == q.Sandbox) && !f.Upstream // what it serves is listed
	}) {
		if e.Within != "" {
			parts[e.Within] = append(parts[e.Within], e)
			if e.ID == q.Flow {
				within = e.Within
			}
			continue
		}
		if e.ID > q.After && (q.Host == "" || e.Request.Host == q.Host) && (q.Rule == "" || e.Live != nil && e.Live.Judged().Rule == q.Rule) {
			whole = append(whole, e)
		}
	}
	if q.Flow != "" {
		whole = slices.DeleteFunc(whole, func(e *entry) bool { return e.ID != q.Flow && e.ID != within })
	}
	return whole, parts
}

// connectionView tells of a connection; parts that are all of it are told as itself.
func connectionView(e *entry, parts []*entry) View {
	v := e.view()
	slices.SortFunc(parts, func(a, b *entry) int { return cmp.Compare(a.ID, b.ID) })
	for _, part := range parts {
		if part.Live == e.Live {
			v.Opaque = v.Opaque || part.Opaque
			continue
		}
		v.Stage = stageName(part.Request.Stage)
		if v.PartsTotal++; v.PartsTotal <= maxParts {
			v.Parts = append(v.Parts, part.view())
		}
	}
	return v
}

func (e *entry) view() View {
	r := &e.Request
	v := View{ID: e.ID, Sandbox: e.Binding.Sandbox, Incarnation: e.Binding.Incarnation, Stage: stageName(r.Stage), Host: r.Host, Port: r.Port,
		Method: r.Method, Opaque: e.Opaque, Local: e.Local}
	if r.Host == "" && r.Addr.IsValid() {
		v.Address = r.Addr.String()
	}
	if r.Protocol != 0 {
		v.Protocol = r.Protocol.String()
	}
	if e.Live == nil {
		return v
	}
	j := e.Live.Judged()
	v.Decision, v.Level, v.Rule, v.RuleLayer, v.Version, v.Revision = j.Decision, j.Level, j.Rule, j.RuleLayer, j.Version, j.Revision
	if j.Protocol != "" {
		v.Protocol = j.Protocol
	}
	v.Since, v.BytesIn, v.BytesOut = e.Live.Since.UTC(), e.Live.In.Load(), e.Live.Out.Load()
	if v.BytesIn+v.BytesOut > 0 {
		last := time.Now().Add(-e.Live.Idle()).UTC()
		v.LastByte = &last
	}
	if a := e.Live.Remote(); a.IsValid() {
		v.Address = a.Addr().String()
	}
	return v
}

func stageName(s policies.Stage) string {
	if s == policies.StageRequest {
		return "request"
	}
	return "connect"
}

// KillFlow ends one flow of the org, a connection with all that is on it or a part alone; others go on. It says what was ended, and
// false if there is no such flow.
func (t *Table) KillFlow(org, sandbox, id string, r policies.Reason) (View, bool) {
	for _, e := range t.entries(func(f *Flow) bool {
		return f.ID == id && f.Binding.Org == org && (sandbox == "" || f.Binding.Sandbox == sandbox)
	}) {
		v := e.view()
		return v, e.kill(r)
	}
	return View{}, false
}
