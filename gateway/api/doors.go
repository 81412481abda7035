package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/egress/credentials"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/secrets/seal"
	"portreeve.dev/sso"
)

// Doors says where attached sandboxes come in.
type Doors struct {
	HTTP, SOCKS string // host:port as clients dial them; empty: there is none
	// Authority returns in PEM who signs their certificates; nil: somebody whom clients know.
	Authority func(ctx context.Context) ([]byte, error)
	// Trust returns in PEM the root under which the org's connections are opened; nil: none are.
	Trust func(ctx context.Context, org string) ([]byte, error)
}

// doorKeyLife is how long a key signs passwords. The one before it is good until the next change.
const doorKeyLife = 24 * time.Hour

// DoorKeyRecord is what the sealed key of an org's doors is bound to.
func DoorKeyRecord(org string, version int64) seal.Record {
	return seal.Record{Kind: "door_key", Org: org, Version: version}
}

type doorIn struct {
	ID   string `path:"id"`
	Body struct {
		Door   string `json:"door,omitempty" enum:"http,socks,socket" default:"http" doc:"http and socks listen on the network, over TLS, where they are configured. socket is a file on the machine of the node, which only root reaches."`
		Source string `json:"source,omitempty" maxLength:"45" doc:"The one address from which the password may be used; default: yours."`
	}
}

type doorView struct {
	Door      string     `json:"door" enum:"http,socks,socket"`
	URL       string     `json:"url,omitempty" doc:"https://host:port for the HTTP proxy; tls://host:port for SOCKS5 behind TLS."`
	Username  string     `json:"username,omitempty"`
	Password  string     `json:"password,omitempty" doc:"Shown once, and good for 15 minutes."`
	Source    string     `json:"source,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Socket    string     `json:"socket,omitempty"`
	CA        string     `json:"ca,omitempty" doc:"Who signs the door's certificate, in PEM; none where clients know it."`
	Trust     string     `json:"trust,omitempty" doc:"Who signs for the hosts whose TLS a policy opens, in PEM: what runs in the sandbox must trust it."`
}

type doorOut struct {
	Body doorView
}

func (s *Server) doorRoutes() {
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "open-door", Method: http.MethodPost, Path: "/sandbox/{id}/door", Summary: "Get a password for an attached sandbox",
		Description:   "For a sandbox of the kind attached: where its traffic comes in, and with what. Ask again before the password expires.",
		DefaultStatus: http.StatusCreated, Tags: []string{"sandboxes"}}, s.openDoor)
}

func (s *Server) openDoor(ctx context.Context, c *caller, in *doorIn) (*doorOut, error) {
	b, err := s.sandbox(ctx, c, in.ID)
	switch {
	case err != nil:
		return nil, err
	case b.Kind != store.Attached:
		return nil, problem(http.StatusConflict, "own_sandbox", "a node of ours runs this sandbox: all of its traffic comes in by the wire, and no door is needed")
	case b.Status != store.Running || !s.Now().Before(b.ExpiresAt):
		return nil, ended(b)
	}
	out := &doorOut{Body: doorView{Door: in.Body.Door}}
	if s.Doors.Trust != nil {
		pem, err := s.Doors.Trust(ctx, b.Org)
		if err != nil {
			return nil, err
		}
		out.Body.Trust = string(pem)
	}
	if in.Body.Door == "socket" {
		err = s.openSocket(ctx, c, b, &out.Body)
	} else {
		err = s.openNetworkDoor(ctx, c, b, in, &out.Body)
	}
	return out, err
}

// ended is the refusal for an attached sandbox that isn't there any more, or not yet.
func ended(b store.Sandbox) *Problem {
	detail := "the sandbox is " + string(b.Status)
	if b.Reason != "" {
		detail += ": " + b.Reason
	}
	return problem(http.StatusConflict, "sandbox_not_running", detail)
}

func (s *Server) openSocket(ctx context.Context, c *caller, b store.Sandbox, v *doorView) (err error) {
	if v.Socket, err = s.Sandboxes.Socket(ctx, b); err != nil {
		if errors.Is(err, sandboxes.ErrState) {
			return ended(b)
		}
		return s.nodeRefused(err)
	}
	return s.note(ctx, c, audit.DoorOpen, b.ID, map[string]string{"door": v.Door})
}

func (s *Server) openNetworkDoor(ctx context.Context, c *caller, b store.Sandbox, in *doorIn, v *doorView) error {
	door, address, scheme := credentials.HTTP, s.Doors.HTTP, "https://"
	if in.Body.Door == "socks" {
		door, address, scheme = credentials.SOCKS, s.Doors.SOCKS, "tls://"
	}
	if address == "" {
		return problem(http.StatusConflict, "no_such_door", "this door is not open: the installation names no address for it under egress.doors")
	}
	from, err := sourceOf(c, in.Body.Source)
	if err != nil {
		return err
	}
	if s.Doors.Authority != nil {
		pem, err := s.Doors.Authority(ctx)
		if err != nil {
			return err
		}
		v.CA = string(pem)
	}
	key, revision, err := s.doorKey(ctx, c, b, door, from)
	if err != nil {
		return err
	}
	expires := s.Now().Add(credentials.Lifetime).Truncate(time.Second)
	if b.ExpiresAt.Before(expires) {
		expires = b.ExpiresAt
	}
	v.URL, v.Username, v.Source, v.ExpiresAt = scheme+address, b.ID, from.String(), &expires
	v.Password, err = credentials.Mint(key, credentials.Claims{Sandbox: b.ID, Incarnation: max(b.Incarnation, 1), Door: door, Source: from, Expires: expires})
	if err != nil || revision == 0 {
		return err
	}
	// The edges must have the key before anybody shows what it signed.
	s.Feed.Publish(ctx, revision)
	wait, cancel := context.WithTimeout(ctx, s.Applied)
	defer cancel()
	if err := s.Feed.WaitApplied(wait, revision); err != nil {
		s.Log.Warn("a new door key is not at the edge yet", "err", err, "request_id", requestID(ctx))
	}
	return nil
}

// sourceOf is the address from which a password may be used.
func sourceOf(c *caller, wanted string) (netip.Addr, error) {
	if wanted == "" {
		wanted = c.Address
	}
	from, err := netip.ParseAddr(wanted)
	if err != nil || from.Zone() != "" || from.IsUnspecified() {
		return from, invalid("body.source", "must be an address like 192.0.2.7")
	}
	return from.Unmap(), nil
}

// doorKey returns the key that signs now, and makes one when there is none or it has signed for long enough. The revision is 0 where
// nothing changed.
func (s *Server) doorKey(ctx context.Context, c *caller, b store.Sandbox, door credentials.Door, from netip.Addr) (key credentials.Key, revision int64, err error) {
	revision, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
		keys, err := tx.DoorKeys(ctx, tx.Org())
		if err != nil {
			return err
		}
		if len(keys) > 0 && tx.Now().Sub(keys[0].CreatedAt).Abs() < doorKeyLife { // one of the future was made while the clock was ahead
			secret, err := s.Keyring.Open(DoorKeyRecord(tx.Org(), keys[0].Version), keys[0].Sealed)
			if err != nil {
				return err
			}
			key = credentials.Key{Version: uint32(keys[0].Version), Secret: secret}
		} else if key, err = s.rotateDoorKey(ctx, tx, keys); err != nil {
			return err
		}
		return tx.Record(ctx, audit.DoorOpen, b.ID, map[string]string{"door": string(door), "source": from.String()})
	})
	return key, revision, err
}

func (s *Server) rotateDoorKey(ctx context.Context, tx *store.Tx, before []store.DoorKey) (credentials.Key, error) {
	version := int64(1)
	if len(before) > 0 {
		version = before[0].Version + 1
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return credentials.Key{}, err
	}
	sealed, err := s.Keyring.Seal(DoorKeyRecord(tx.Org(), version), secret)
	if err != nil {
		return credentials.Key{}, err
	}
	if err := tx.RotateDoorKey(ctx, store.DoorKey{Version: version, Sealed: sealed}); err != nil {
		return credentials.Key{}, err
	}
	return credentials.Key{Version: uint32(version), Secret: secret}, tx.Record(ctx, audit.DoorKeyRotate, tx.Org(), map[string]string{"version": fmt.Sprint(version)})
}

// isAttached is the refusal for what only a node could do.
func isAttached() *Problem {
	return problem(http.StatusConflict, "attached_sandbox",
		"the sandbox is attached: somebody else runs it, so it has no commands, files, ports or sleep here; policies, decisions and flows it has")
}

// attachable refuses the fields that mean nothing to an attached sandbox, rather than to pass over them.
func attachable(in *sandboxCreateIn) error {
	switch {
	case in.Body.Template != "":
		return invalid("body.template", "is for sandboxes that a node runs")
	case len(in.Body.Env) > 0:
		return invalid("body.env", "is for sandboxes that a node runs")
	case in.Body.Workspace != nil:
		return invalid("body.workspace", "is for sandboxes that a node runs")
	}
	return nil
}

var labelName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$`)

func checkLabels(labels map[string]string) error {
	if len(labels) > 32 {
		return invalid("body.labels", "are more than 32")
	}
	for name, value := range labels {
		if !labelName.MatchString(name) || len(value) > 255 {
			return invalid("body.labels", "has a name or value that is none: names are lower case with . _ / - inside, values up to 255 bytes")
		}
	}
	return nil
}
