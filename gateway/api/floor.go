package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/policies/netaddr"
	"portreeve.dev/sso"
)

const (
	exemptionsMost  = 256                  // of the installation: each dial to a closed address looks at all
	exemptionLonger = 366 * 24 * time.Hour // one that is to last longer has no end
)

type exemptionView struct {
	ID        string     `json:"id,omitempty" doc:"Of one that is kept; those of the configuration have none."`
	CIDR      string     `json:"cidr"`
	Ports     []uint16   `json:"ports" nullable:"false" doc:"None: every port but 25."`
	Orgs      []string   `json:"orgs" nullable:"false" doc:"Who may use it, by id; * is every org."`
	Note      string     `json:"note,omitempty"`
	CreatedBy string     `json:"created_by,omitempty" doc:"The key that made it."`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

func viewExemption(e store.FloorExemption) exemptionView {
	v := exemptionView{ID: e.ID, CIDR: e.CIDR.String(), Ports: e.Ports, Orgs: e.Orgs, Note: e.Note, CreatedBy: e.CreatedBy, CreatedAt: unlessZero(e.CreatedAt), ExpiresAt: unlessZero(e.ExpiresAt)}
	if v.Ports == nil {
		v.Ports = []uint16{}
	}
	return v
}

// FloorDetails are what an audit entry says of an exemption.
func FloorDetails(e store.FloorExemption) map[string]string {
	d := map[string]string{"cidr": e.CIDR.String(), "orgs": strings.Join(e.Orgs, " ")}
	if len(e.Ports) > 0 {
		d["ports"] = strings.Trim(fmt.Sprint(e.Ports), "[]")
	}
	if e.Note != "" {
		d["note"] = e.Note
	}
	if !e.ExpiresAt.IsZero() {
		d["expires_at"] = e.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return d
}

type exemptIn struct {
	Wait string `query:"wait" enum:"applied" doc:"Answer after every connected edge has acknowledged."`
	Body struct {
		CIDR  string   `json:"cidr" maxLength:"50" doc:"A range outside the hard floor, like 10.20.0.0/16."`
		Ports []int    `json:"ports,omitempty" maxItems:"64" doc:"Default: every port but 25, which has to be named."`
		Orgs  []string `json:"orgs" minItems:"1" maxItems:"50" doc:"Ids or slugs of the orgs that may use it; * alone is every org."`
		Note  string   `json:"note,omitempty" maxLength:"500" doc:"Why; it stands in the audit log too."`
		For   string   `json:"for,omitempty" maxLength:"20" doc:"How long, from now: 30m, 24h; at most 8784h. Default: until it is revoked."`
	}
}

type exemptionOut struct {
	Body exemptionView
}

type exemptionListOut struct {
	Body struct {
		Exemptions []exemptionView `json:"exemptions" nullable:"false" doc:"Those that are kept, the oldest first."`
		Configured []exemptionView `json:"configured" nullable:"false" doc:"Those of the configuration file, which change with it alone; orgs as they are named there."`
	}
}

type exemptionIDIn struct {
	ID   string `path:"id"`
	Wait string `query:"wait" enum:"applied" doc:"Answer after every connected edge has acknowledged, and has ended what it must end."`
}

func (s *Server) floorRoutes() {
	tags := []string{"platform"}
	route(s, sso.ScopePlatform, huma.Operation{OperationID: "list-floor-exemptions", Method: http.MethodGet, Path: "/platform/floor-exemptions", Summary: "List what is open of the floor", Tags: tags}, s.listExemptions)
	route(s, sso.ScopePlatform, huma.Operation{OperationID: "create-floor-exemption", Method: http.MethodPost, Path: "/platform/floor-exemptions", Summary: "Open a part of the soft floor",
		Description: "For rules that allow the host or the address, and no others. Nothing opens the hard part.", DefaultStatus: http.StatusCreated, Tags: tags}, s.exemptFloor)
	route(s, sso.ScopePlatform, huma.Operation{OperationID: "delete-floor-exemption", Method: http.MethodDelete, Path: "/platform/floor-exemptions/{id}", Summary: "Close it again",
		Description: "Connections that no other exemption allows end.", Tags: tags}, s.closeExemption)
}

func (s *Server) listExemptions(ctx context.Context, _ *caller, _ *struct{}) (*exemptionListOut, error) {
	all, err := s.Store.FloorExemptions(ctx)
	if err != nil {
		return nil, err
	}
	out := &exemptionListOut{}
	out.Body.Exemptions, out.Body.Configured = []exemptionView{}, []exemptionView{}
	for _, e := range all {
		out.Body.Exemptions = append(out.Body.Exemptions, viewExemption(e))
	}
	for _, e := range s.Configured {
		out.Body.Configured = append(out.Body.Configured, viewExemption(store.FloorExemption{Exemption: e}))
	}
	return out, nil
}

func (s *Server) exemptFloor(ctx context.Context, c *caller, in *exemptIn) (*exemptionOut, error) {
	e, err := s.exemption(ctx, in)
	if err != nil {
		return nil, err
	}
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if e, err = tx.CreateFloorExemption(ctx, e, exemptionsMost); err != nil {
			return err
		}
		return tx.Record(ctx, audit.FloorExempt, e.ID, FloorDetails(e))
	})
	if errors.Is(err, store.ErrLimit) {
		return nil, problem(http.StatusConflict, "too_many_floor_exemptions", fmt.Sprintf("there are %d exemptions, which is the most", exemptionsMost))
	}
	if err != nil {
		return nil, err
	}
	if err := s.published(ctx, revision, in.Wait); err != nil {
		return nil, err
	}
	return &exemptionOut{viewExemption(e)}, nil
}

// exemption reads one, and refuses what the configuration would refuse.
func (s *Server) exemption(ctx context.Context, in *exemptIn) (store.FloorExemption, error) {
	e := store.FloorExemption{ID: store.NewID("flx"), Note: readable(in.Body.Note)}
	var err error
	if e.CIDR, err = netip.ParsePrefix(in.Body.CIDR); err != nil {
		return e, invalid("body.cidr", "must be a range like 10.20.0.0/16")
	}
	for i, p := range in.Body.Ports {
		if p < 1 || p > 65535 {
			return e, invalid(fmt.Sprintf("body.ports[%d]", i), "must be between 1 and 65535")
		}
		e.Ports = append(e.Ports, uint16(p))
	}
	if in.Body.For != "" {
		d, err := time.ParseDuration(in.Body.For)
		if err != nil || d < time.Second || d > exemptionLonger {
			return e, invalid("body.for", "must be a duration from 1s to 8784h")
		}
		e.ExpiresAt = s.Now().UTC().Add(d).Truncate(time.Microsecond)
	}
	if e.Orgs, err = s.orgsNamed(ctx, in.Body.Orgs); err != nil {
		return e, err
	}
	if _, err = s.Floor.With(e.Exemption); err != nil {
		if wrong, ok := errors.AsType[*policies.FieldError](err); ok {
			return e, invalid("body."+wrong.Path, wrong.Message)
		}
		return e, err
	}
	e.CIDR, err = netaddr.CanonicalPrefix(e.CIDR)
	return e, err
}

// orgsNamed turns names of orgs, ids or slugs, into ids; * alone stands for all.
func (s *Server) orgsNamed(ctx context.Context, names []string) (ids []string, err error) {
	if len(names) == 1 && names[0] == policies.EveryOrg {
		return names, nil
	}
	all, err := s.Store.Orgs(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[string]string, 2*len(all))
	for _, o := range all {
		known[o.ID], known[o.Slug] = o.ID, o.ID
	}
	for i, name := range names {
		id := known[name]
		switch {
		case name == policies.EveryOrg:
			return nil, invalid(fmt.Sprintf("body.orgs[%d]", i), "stands for every org, and has to stand alone")
		case id == "":
			return nil, invalid(fmt.Sprintf("body.orgs[%d]", i), "is neither the id nor the slug of an org")
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (s *Server) closeExemption(ctx context.Context, c *caller, in *exemptionIDIn) (*success, error) {
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
		was, err := tx.DeleteFloorExemption(ctx, in.ID)
		if err != nil {
			return err
		}
		return tx.Record(ctx, audit.FloorRevoke, was.ID, FloorDetails(was))
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("floor_exemption")
	}
	if err != nil {
		return nil, err
	}
	if err := s.published(ctx, revision, in.Wait); err != nil {
		return nil, err
	}
	return succeeded(), nil
}
