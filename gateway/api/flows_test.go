package api_test

import (
	"context"
	"sync"
	"testing"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
)

// An edge holds live flows, each of one org.
type edge struct {
	mu     sync.Mutex
	live   map[string][]flows.View // by org
	killed []string
	away   bool
	before func() // called as a kill begins
}

func (e *edge) Page(_ context.Context, q flows.Query) (flows.Page, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return flows.Page{}, api.ErrNoEdge
	}
	var p flows.Page
	for _, v := range e.live[q.Org] {
		if (q.Sandbox == "" || v.Sandbox == q.Sandbox) && (q.Flow == "" || v.ID == q.Flow) && v.ID > q.After {
			if len(p.Flows) == q.Limit {
				p.More = true
				break
			}
			p.Flows = append(p.Flows, v)
		}
	}
	return p, nil
}

func (e *edge) Kill(_ context.Context, org, sandbox, flow string) (flows.View, error) {
	e.before()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return flows.View{}, api.ErrNoEdge
	}
	for _, v := range e.live[org] {
		if v.Sandbox == sandbox && v.ID == flow {
			e.killed = append(e.killed, flow)
			return v, nil
		}
	}
	return flows.View{}, api.ErrNoFlow
}

func newEdge(t *testing.T) (*apitest.World, *edge) {
	e := &edge{live: map[string][]flows.View{}, before: func() {}}
	return apitest.New(t, func(c *api.Config) { c.Flows = e }), e
}

func TestFlowsAreListed(t *testing.T) {
	w, e := newEdge(t)
	c, other := w.Org("one"), w.Org("two")
	box, second, theirs := c.Sandbox(), c.Sandbox(), other.Sandbox()
	e.live[c.Org] = []flows.View{{ID: "flo_1", Sandbox: box, Host: "a.test"}, {ID: "flo_2", Sandbox: second}, {ID: "flo_3", Sandbox: box}}
	e.live[other.Org] = []flows.View{{ID: "flo_4", Sandbox: theirs}}
	a := c.Do("GET", "/sandbox/"+box+"/flows", nil).Want(200)
	if a.String("flows.0.id") != "flo_1" || a.String("flows.1.id") != "flo_3" || a.At("flows.2") != nil || a.At("next_cursor") != nil {
		t.Errorf("%s", a.Body)
	}
	a = c.Do("GET", "/flows?limit=2", nil).Want(200)
	if a.String("flows.1.id") != "flo_2" || a.String("next_cursor") != "flo_2" {
		t.Errorf("%s", a.Body)
	}
	if a = c.Do("GET", "/flows?limit=2&cursor=flo_2", nil).Want(200); a.String("flows.0.id") != "flo_3" || a.At("flows.1") != nil {
		t.Errorf("%s", a.Body)
	}
	if a = c.Do("GET", "/flows?sandbox_id="+second, nil).Want(200); a.String("flows.0.id") != "flo_2" || a.At("flows.1") != nil {
		t.Errorf("%s", a.Body)
	}
	c.Do("GET", "/flows?cursor=x", nil).Refused(422, "invalid_request", "query.cursor")
	for _, path := range []string{"/sandbox/" + theirs + "/flows", "/flows?sandbox_id=" + theirs} {
		c.Do("GET", path, nil).Refused(404, "sandbox_not_found")
	}
	e.away = true
	c.Do("GET", "/flows", nil).Refused(503, "edge_unavailable")
}

func TestKilledFlowIsWrittenDownFirst(t *testing.T) {
	w, e := newEdge(t)
	c, other := w.Org("one"), w.Org("two")
	box, theirs := c.Sandbox(), other.Sandbox()
	e.live[c.Org] = []flows.View{{ID: "flo_1", Sandbox: box, Host: "a.test", Decision: "dec_1"}}
	e.live[other.Org] = []flows.View{{ID: "flo_2", Sandbox: theirs}}
	entries := 0
	e.before = func() {
		all, err := w.Store.AuditChain(t.Context(), c.Org, 1, 100)
		if err != nil {
			t.Error(err)
		}
		for _, entry := range all {
			if entry.Action == "flow.kill" && entry.Object == "flo_1" && entry.Details["sandbox"] == box && entry.Details["host"] == "a.test" && entry.Actor != "" {
				entries++
			}
		}
	}
	c.Do("DELETE", "/sandbox/"+box+"/flows/flo_9", nil).Refused(404, "flow_not_found")
	c.Do("DELETE", "/sandbox/"+box+"/flows/flo_2", nil).Refused(404, "flow_not_found")
	c.Do("DELETE", "/sandbox/"+theirs+"/flows/flo_2", nil).Refused(404, "sandbox_not_found")
	c.With([]string{"read"}).Do("DELETE", "/sandbox/"+box+"/flows/flo_1", nil).Refused(403, "scope_missing")
	if len(e.killed) != 0 {
		t.Fatalf("killed %v", e.killed)
	}
	if a := c.Do("DELETE", "/sandbox/"+box+"/flows/flo_1", nil).Want(200); a.String("flow.host") != "a.test" {
		t.Errorf("%s", a.Body)
	}
	if len(e.killed) != 1 || entries != 1 {
		t.Errorf("killed %v, %d entries were there before", e.killed, entries)
	}
	e.away = true
	c.Do("DELETE", "/sandbox/"+box+"/flows/flo_1", nil).Refused(503, "edge_unavailable")
}
