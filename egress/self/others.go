package self

import (
	"context"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// services lists the allowed hosts that have a grant, by name only: not which secret, nor where in a request it goes.
func (h *Handler) services(w http.ResponseWriter, _ *http.Request, b egress.Binding) error {
	s, floor, err := h.fresh(b)
	if err != nil {
		return err
	}
	places, err := h.cfg.Granted(b)
	if err != nil {
		return errStale
	}
	out := struct {
		Services []string `json:"services"`
		About    string   `json:"about"`
	}{Services: []string{}, About: "Requests over https to these hosts get their credential on the way; send them without one."}
	for _, p := range places {
		v := floor.Evaluate(b.Org, s, &policies.Request{Stage: policies.StageConnect, Host: p.Host, Port: p.Port, Protocol: policies.HTTPS, Now: h.cfg.Now()})
		name := p.Host
		if p.Port != 443 {
			name = destination(p.Host, "", p.Port)
		}
		if v.Allowed() && !slices.Contains(out.Services, name) {
			out.Services = append(out.Services, name)
		}
	}
	slices.Sort(out.Services)
	write(w, http.StatusOK, "application/json", out)
	return nil
}

func (h *Handler) authority(w http.ResponseWriter, r *http.Request, b egress.Binding) error {
	free := h.limits.call(b)
	if free == nil {
		return errBusy
	}
	defer free()
	ctx, cancel := context.WithTimeout(r.Context(), callTime)
	defer cancel()
	pem, err := h.cfg.Control.Authority(ctx, b)
	if err != nil {
		return err
	}
	if strings.Contains(pem, "PRIVATE KEY") {
		return errControl // whatever went wrong there, it stays there
	}
	writeBytes(w, http.StatusOK, "application/x-pem-file", []byte(pem))
	return nil
}

func (h *Handler) revoked(w http.ResponseWriter, r *http.Request, b egress.Binding) error {
	id, ok := strings.CutSuffix(r.PathValue("list"), ".crl")
	if _, err := hex.DecodeString(id); err != nil || !ok || len(id) > 64 {
		return refuse(http.StatusNotFound, "not_found", "there is no such list")
	}
	free := h.limits.call(b)
	if free == nil {
		return errBusy
	}
	defer free()
	ctx, cancel := context.WithTimeout(r.Context(), callTime)
	defer cancel()
	list, err := h.cfg.Control.Revoked(ctx, b, id)
	if err != nil {
		return err
	}
	writeBytes(w, http.StatusOK, "application/pkix-crl", list)
	return nil
}

// pause answers before it asks: a sandbox that sleeps reads nothing.
func (h *Handler) pause(w http.ResponseWriter, r *http.Request, b egress.Binding) error {
	if r.ContentLength > maxBody {
		return refuse(http.StatusRequestEntityTooLarge, "body_too_large", "the body is over 16 KiB")
	}
	if !h.limits.ask(b.Sandbox, h.cfg.Now()) {
		return errBusy
	}
	free := h.limits.call(b)
	if free == nil {
		return errBusy
	}
	defer free()
	write(w, http.StatusAccepted, "application/json", struct {
		State string `json:"state"`
		About string `json:"about"`
	}{"pausing", "A call through a tunnel, or whoever runs this sandbox, wakes it."})
	_ = http.NewResponseController(w).Flush()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), callTime)
	defer cancel()
	if err := h.cfg.Control.Pause(ctx, b); err != nil {
		h.cfg.Log.Warn("a sandbox that asked for it could not be paused", "sandbox", b.Sandbox, "err", err)
	}
	return nil
}
