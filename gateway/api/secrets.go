package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/secrets"
	"portreeve.dev/secrets/seal"
	"portreeve.dev/sso"
)

var secretName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)

// A secretView never holds the value: there is no way to read one back.
type secretView struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Scope     string      `json:"scope"`
	Version   int64       `json:"version" doc:"Grows with each new value."`
	State     string      `json:"state" enum:"ready,unavailable" doc:"unavailable: its value can't be opened; requests that it is granted for are refused until it gets a new one."`
	Grants    []grantView `json:"grants" nullable:"false"`
	CreatedAt time.Time   `json:"created_at"`
	UpdatedAt time.Time   `json:"updated_at"`
}

// A grantView is a grant as it is sent and shown.
type grantView struct {
	Host     string   `json:"host" maxLength:"300" doc:"A name, exact."`
	Port     int      `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"Default 443."`
	Methods  []string `json:"methods,omitempty" maxItems:"20" doc:"Default: every one but TRACE and CONNECT."`
	Path     string   `json:"path,omitempty" maxLength:"2048" doc:"As in a policy; default /**."`
	Place    string   `json:"place" enum:"header"`
	Header   string   `json:"header" maxLength:"200" doc:"Its name."`
	Template string   `json:"template,omitempty" maxLength:"1024" doc:"Holds {value} once; default {value}."`
	Policies []string `json:"policies,omitempty" maxItems:"100" doc:"Only for sandboxes under these named policies; default: all of the org."`
	Scrub    string   `json:"scrub,omitempty" enum:"headers,bodies" doc:"What of the host's answers is searched for the value, and has it replaced: header and trailer fields (default), or bodies too."`
}

func (g grantView) grant() secrets.Grant {
	return secrets.Grant{Host: g.Host, Port: uint16(g.Port), Methods: g.Methods, Path: g.Path, Place: g.Place, Header: g.Header, Template: g.Template, Policies: g.Policies, Scrub: g.Scrub}
}

func (s *Server) viewSecret(kept store.Secret) secretView {
	v := secretView{kept.ID, kept.Name, kept.Scope, kept.Version, "ready", []grantView{}, kept.CreatedAt, kept.UpdatedAt}
	if _, err := s.Keyring.Open(sealedAs(kept.Org, kept.ID, kept.Version), kept.Sealed); err != nil {
		v.State = "unavailable"
	}
	for _, g := range kept.Grants {
		v.Grants = append(v.Grants, grantView{g.Host, int(g.Port), g.Methods, g.Path, g.Place, g.Header, g.Template, g.Policies, g.Scrub})
	}
	return v
}

type secretListOut struct {
	Body struct {
		Secrets []secretView `json:"secrets" nullable:"false"`
	}
}

type secretOut struct {
	Body struct {
		Secret secretView `json:"secret"`
	}
}

type secretCreateIn struct {
	Body struct {
		Name  string `json:"name" maxLength:"64" doc:"A letter, then letters, digits, dots, dashes and underscores."`
		Value string `json:"value" doc:"1 byte to 8 KiB of visible ASCII. It can't be read back."`
		Scope string `json:"scope,omitempty" enum:"sandbox" doc:"Default sandbox."`
	}
}

type secretPutIn struct {
	Name string `path:"name"`
	Body struct {
		Value string `json:"value"`
	}
}

type secretNameIn struct {
	Name string `path:"name"`
}

type grantsIn struct {
	Name string `path:"name"`
	Body struct {
		Grants []grantView `json:"grants" nullable:"false" maxItems:"100"`
	}
}

type injectIn struct {
	ID   string `path:"id"`
	Body struct {
		Secrets []string `json:"secrets,omitempty"`
		All     bool     `json:"all,omitempty"`
		EnvVars bool     `json:"as_env_vars,omitempty"`
	}
}

type injectOut struct {
	Body struct {
		Injected []string `json:"injected" nullable:"false" doc:"Always empty: no value enters a sandbox. Say where a secret may go by its grants."`
	}
}

func (s *Server) secretRoutes() {
	tags := []string{"secrets"}
	route(s, sso.ScopeRead, huma.Operation{OperationID: "list-secrets", Method: http.MethodGet, Path: "/secrets", Summary: "List secrets, without values", Tags: tags}, s.listSecrets)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "create-secret", Method: http.MethodPost, Path: "/secrets", Summary: "Keep a secret",
		DefaultStatus: http.StatusCreated, Tags: tags}, s.createSecret)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "put-secret", Method: http.MethodPut, Path: "/secrets/{name}", Summary: "Replace a secret's value", Tags: tags}, s.putSecret)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "delete-secret", Method: http.MethodDelete, Path: "/secrets/{name}", Summary: "Delete a secret and its grants", Tags: tags}, s.deleteSecret)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-grants", Method: http.MethodGet, Path: "/secrets/{name}/grants", Summary: "Where a secret may go", Tags: tags}, s.getGrants)
	route(s, sso.ScopeGrants, huma.Operation{OperationID: "put-grants", Method: http.MethodPut, Path: "/secrets/{name}/grants", Summary: "Say where a secret may go", Tags: tags}, s.putGrants)
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "inject-secrets", Method: http.MethodPost, Path: "/sandbox/{id}/secrets/inject",
		Summary: "Accepted for known clients; sets nothing", Tags: tags}, s.injectSecrets)
}

func (s *Server) listSecrets(ctx context.Context, c *caller, _ *struct{}) (*secretListOut, error) {
	all, err := s.Store.Secrets(ctx, c.org())
	if err != nil {
		return nil, err
	}
	out := &secretListOut{}
	out.Body.Secrets = []secretView{}
	for _, one := range all {
		out.Body.Secrets = append(out.Body.Secrets, s.viewSecret(one))
	}
	return out, nil
}

func (s *Server) createSecret(ctx context.Context, c *caller, in *secretCreateIn) (*secretOut, error) {
	if !secretName.MatchString(in.Body.Name) {
		return nil, invalid("body.name", "a name is a letter, then up to 63 letters, digits, dots, dashes and underscores")
	}
	id := store.NewID("sec")
	sealed, err := s.sealValue(c.org(), id, 1, in.Body.Value)
	if err != nil {
		return nil, err
	}
	made := store.Secret{ID: id, Name: in.Body.Name, Scope: "sandbox", Sealed: sealed}
	return s.changeSecret(ctx, c, audit.SecretCreate, func(tx *store.Tx) (store.Secret, error) {
		made, err := tx.CreateSecret(ctx, made)
		if errors.Is(err, store.ErrConflict) {
			return made, problem(http.StatusConflict, "secret_exists", "there is a secret of that name; PUT /secrets/{name} replaces its value")
		}
		return made, err
	})
}

// sealValue checks a value and seals it. No error holds it.
func (s *Server) sealValue(org, id string, version int64, text string) ([]byte, error) {
	value, err := secrets.NewValue([]byte(text))
	if err != nil {
		return nil, invalid("body.value", err.Error()) // which says what is wrong, not what was sent
	}
	return s.Keyring.Seal(sealedAs(org, id, version), value.Reveal())
}

// sealedAs is what a secret's sealed bytes are bound to.
func sealedAs(org, id string, version int64) seal.Record {
	return seal.Record{Kind: "secret", Org: org, Name: id, Version: version}
}

func (s *Server) putSecret(ctx context.Context, c *caller, in *secretPutIn) (*secretOut, error) {
	return s.changeSecret(ctx, c, audit.SecretUpdate, func(tx *store.Tx) (store.Secret, error) {
		// Read and sealed within the change: what is sealed for one secret must never come to stand in another's row, which
		// may have been deleted and made anew meanwhile.
		now, err := secretOf(ctx, tx, in.Name)
		if err != nil {
			return now, err
		}
		next := now.Version + 1
		sealed, err := s.sealValue(c.org(), now.ID, next, in.Body.Value)
		if err != nil {
			return now, err
		}
		if err := tx.SetSecretValue(ctx, in.Name, next, sealed); err != nil {
			return now, err
		}
		return tx.Secret(ctx, tx.Org(), in.Name)
	})
}

// secretOf reads a secret of the change's org, or refuses.
func secretOf(ctx context.Context, tx *store.Tx, name string) (store.Secret, error) {
	found, err := tx.Secret(ctx, tx.Org(), name)
	if errors.Is(err, store.ErrNotFound) {
		return found, notFound("secret")
	}
	return found, err
}

func (s *Server) deleteSecret(ctx context.Context, c *caller, in *secretNameIn) (*success, error) {
	_, err := s.changeSecret(ctx, c, audit.SecretDelete, func(tx *store.Tx) (store.Secret, error) {
		gone, err := secretOf(ctx, tx, in.Name)
		if err != nil {
			return gone, err
		}
		return gone, tx.DeleteSecret(ctx, in.Name)
	})
	if err != nil {
		return nil, err
	}
	return succeeded(), nil
}

func (s *Server) getGrants(ctx context.Context, c *caller, in *secretNameIn) (*secretOut, error) {
	now, err := s.Store.Secret(ctx, c.org(), in.Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("secret")
	}
	if err != nil {
		return nil, err
	}
	out := &secretOut{}
	out.Body.Secret = s.viewSecret(now)
	return out, nil
}

func (s *Server) putGrants(ctx context.Context, c *caller, in *grantsIn) (*secretOut, error) {
	grants := []secrets.Grant{}
	for i, sent := range in.Body.Grants {
		g := sent.grant()
		if err := g.Complete(); err != nil {
			return nil, refuseGrant(i, sent, err)
		}
		grants = append(grants, g)
	}
	return s.changeSecret(ctx, c, audit.SecretGrant, func(tx *store.Tx) (store.Secret, error) {
		if _, err := secretOf(ctx, tx, in.Name); err != nil {
			return store.Secret{}, err
		}
		if err := notPassed(ctx, tx, grants, s.Now()); err != nil {
			return store.Secret{}, err
		}
		if err := notOpenToAll(ctx, tx, grants); err != nil {
			return store.Secret{}, err
		}
		if err := tx.SetGrants(ctx, in.Name, grants); err != nil {
			return store.Secret{}, err
		}
		return tx.Secret(ctx, tx.Org(), in.Name)
	})
}

// refuseGrant names the wrong field, without what was sent in it: it may be the value, in the wrong place.
func refuseGrant(i int, sent grantView, err error) error {
	wrong, ok := errors.AsType[*secrets.FieldError](err)
	if !ok {
		return err
	}
	text, err := json.Marshal(sent)
	if err != nil {
		return err
	}
	return invalid(fmt.Sprintf("body.grants[%d].%s", i, wrong.Field), clearer(text)(wrong.Message))
}

// changeSecret runs one change with its audit entry and waits until the edges have it: whoever takes a value back, or changes
// it, must not see the old one go out again.
func (s *Server) changeSecret(ctx context.Context, c *caller, action audit.Action, change func(*store.Tx) (store.Secret, error)) (*secretOut, error) {
	var done store.Secret
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if done, err = change(tx); err != nil {
			return tooManySecrets(err)
		}
		tx.Bump()
		return tx.Record(ctx, action, done.ID, map[string]string{"name": done.Name})
	})
	if err != nil {
		return nil, err
	}
	if err := s.published(ctx, revision, "applied"); err != nil {
		return nil, err
	}
	out := &secretOut{}
	out.Body.Secret = s.viewSecret(done)
	return out, nil
}

// tooManySecrets says which limit was reached.
func tooManySecrets(err error) error {
	if !errors.Is(err, store.ErrLimit) {
		return err
	}
	return problem(http.StatusConflict, "limit_reached", fmt.Sprintf("the org's secrets would be over %d, or with their grants over %d MiB in all, which is as many as an org may have: delete some",
		store.SecretCount, store.SecretBytes>>20), FieldError{"body", "is over the org's limit"})
}

// injectSecrets answers known clients. Values enter no sandbox, so none is set.
func (s *Server) injectSecrets(ctx context.Context, c *caller, in *injectIn) (*injectOut, error) {
	if _, err := s.sandbox(ctx, c, in.ID); err != nil {
		return nil, err
	}
	for i, name := range in.Body.Secrets {
		if _, err := s.Store.Secret(ctx, c.org(), name); errors.Is(err, store.ErrNotFound) {
			return nil, invalid(fmt.Sprintf("body.secrets[%d]", i), "there is no secret of that name")
		} else if err != nil {
			return nil, err
		}
	}
	out := &injectOut{}
	out.Body.Injected = []string{}
	return out, nil
}
