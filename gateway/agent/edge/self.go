package edge

import (
	"context"
	"errors"
	"net/http"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/ca"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/egress/self"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// newSelf makes what answers portreeve.internal.
func (e *Edge) newSelf() (*self.Handler, error) {
	return self.New(self.Config{
		Binding: proxy.BindingOf, Policies: e.holder, Floor: e.holder.Floor, Denials: &e.denials, Control: asker{&e.control.Peer, e.issuer},
		Granted: e.granted, Now: e.now, Log: e.log,
	})
}

func (e *Edge) granted(b egress.Binding) ([]self.Place, error) {
	held, policy, err := e.holder.Injector(b)
	if err != nil {
		return nil, err
	}
	var all []self.Place
	for _, d := range held.Destinations(policy) {
		all = append(all, self.Place{Host: d.Host, Port: d.Port})
	}
	return all, nil
}

// noting remembers denials for the sandboxes that they are about, once they are written.
type noting struct {
	proxy.Recorder
	denials *self.Denials
}

func (n noting) Record(ctx context.Context, d *decisions.Decision) error {
	err := n.Recorder.Record(ctx, d)
	if err == nil {
		n.denials.Note(d)
	}
	return err
}

// asker is control as a sandbox may reach it by way of this process: about itself only, and nothing that control does not judge
// again.
type asker struct {
	control *link.Peer
	issuer  *ca.Issuer
}

var _ self.Control = asker{}

func about(b egress.Binding) role.AboutSandbox {
	return role.AboutSandbox{Sandbox: b.Sandbox, Org: b.Org, Incarnation: b.Incarnation}
}

// call asks control; its refusals come back as such.
func (a asker) call(ctx context.Context, method string, in, out any) error {
	conn := a.control.Now()
	if conn == nil {
		return link.ErrClosed
	}
	err := conn.Call(ctx, method, in, out)
	var coded *link.Error
	if errors.As(err, &coded) {
		if status, ok := refusals[coded.Code]; ok {
			return &self.Refusal{Status: status, Code: coded.Code, Detail: coded.Message}
		}
	}
	return err
}

// refusals are the codes that control refuses with, as a sandbox is told.
var refusals = map[string]int{
	role.CodeNotRequestable: http.StatusConflict,
	role.CodeAlreadyAllowed: http.StatusConflict,
	role.CodeTooManyAsks:    http.StatusTooManyRequests,
	role.CodeInvalidAsk:     http.StatusUnprocessableEntity,
	role.CodeNoAsk:          http.StatusNotFound,
	role.CodeNoDecision:     http.StatusNotFound,
	role.CodeNotRunning:     http.StatusConflict,
	role.CodeNoList:         http.StatusNotFound,
}

func (a asker) Ask(ctx context.Context, b egress.Binding, ask self.Ask) (self.Access, error) {
	var out self.Access
	err := a.call(ctx, role.ControlAsk, role.AccessAsk{AboutSandbox: about(b), Ask: ask}, &out)
	return out, err
}

func (a asker) Access(ctx context.Context, b egress.Binding, id string, wait time.Duration) (self.Access, error) {
	var out self.Access
	err := a.call(ctx, role.ControlAccess, role.AccessQuery{AboutSandbox: about(b), ID: id, Wait: wait}, &out)
	return out, err
}

func (a asker) Decision(ctx context.Context, b egress.Binding, id string) (decisions.Decision, error) {
	var out decisions.Decision
	err := a.call(ctx, role.ControlDecision, role.DecisionQuery{AboutSandbox: about(b), ID: id}, &out)
	return out, err
}

func (a asker) Authority(ctx context.Context, b egress.Binding) (string, error) {
	var out role.Trust
	err := a.call(ctx, role.ControlTrust, about(b), &out)
	return out.PEM, err
}

// Revoked signs the list of this edge's own intermediate, and asks control for that of a root.
func (a asker) Revoked(ctx context.Context, b egress.Binding, id string) ([]byte, error) {
	if list, err := a.issuer.List(b.Org, id); !errors.Is(err, ca.ErrNoList) {
		return list, err
	}
	var out role.Revoked
	err := a.call(ctx, role.ControlRevoked, role.RevokedQuery{AboutSandbox: about(b), ID: id}, &out)
	return out.List, err
}

func (a asker) Pause(ctx context.Context, b egress.Binding) error {
	return a.call(ctx, role.ControlPause, about(b), nil)
}
