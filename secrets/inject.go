package secrets

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A Secret is a value with its grants.
type Secret struct {
	ID      string
	Version int64
	Value   Value
	Grants  []Grant // completed
}

// A Request is where a request goes, as the proxy judged it; what the sandbox wrote into it doesn't count.
type Request struct {
	Host     string // the name dialled
	Port     uint16
	Policy   string // the sandbox's named policy; empty is the ceiling
	Path     string // canonical, as it is sent
	Withhold bool   // remove credentials and set none: over plain HTTP, or under a policy that only watches
}

// A Use says which secret went where.
type Use struct {
	Secret  string
	Version int64
	Place   string // header:authorization
}

// An Applied is what happened to a request.
type Applied struct {
	Uses    []Use
	Removed []Found // credentials of the sandbox's own
	// Scrub is for the answer, also where nothing was set: a host may answer with what it was sent before.
	Scrub *Scrubber
}

// ErrUnavailable: a grant fits, and its value can't be used.
var ErrUnavailable = errors.New("secret is not available")

// An Injector holds the secrets of one org. It never changes and is safe for concurrent use; nil holds none.
type Injector struct {
	secrets []Secret
	hosts   map[string]bool // that any grant names

	scrubbers sync.Map // of a Request with nothing but host, port and policy to its *Scrubber, once it was needed
}

// NewInjector checks the grants and returns an Injector for them.
func NewInjector(secrets []Secret) (*Injector, error) {
	i := &Injector{hosts: make(map[string]bool)}
	for _, s := range secrets {
		s.Grants = append([]Grant(nil), s.Grants...)
		for n := range s.Grants {
			if err := s.Grants[n].Complete(); err != nil {
				return nil, fmt.Errorf("secret %q, grant %d: %w", s.ID, n, err)
			}
			i.hosts[s.Grants[n].Host] = true
		}
		i.secrets = append(i.secrets, s)
	}
	return i, nil
}

// Granted reports whether any grant names that host, on whatever port: there, no credential of the sandbox's own passes.
func (i *Injector) Granted(host string) bool { return i != nil && i.hosts[host] }

// Version returns the version of a secret that is granted to at's host and port under its policy, on whatever method and path.
func (i *Injector) Version(secret string, at Request) (version int64, ok bool) {
	if i == nil {
		return 0, false
	}
	for _, s := range i.secrets {
		for _, g := range s.Grants {
			if s.ID == secret && g.reaches(at) {
				return s.Version, true
			}
		}
	}
	return 0, false
}

// A Destination is a host and port that a grant names.
type Destination struct {
	Host string
	Port uint16
}

// Destinations lists, once each, where some value may go for a sandbox under that named policy.
func (i *Injector) Destinations(policy string) []Destination {
	if i == nil {
		return nil
	}
	var all []Destination
	for _, s := range i.secrets {
		for _, g := range s.Grants {
			d := Destination{g.Host, g.Port}
			if (len(g.Policies) == 0 || slices.Contains(g.Policies, policy)) && !slices.Contains(all, d) {
				all = append(all, d)
			}
		}
	}
	return all
}

// Apply shapes r, which goes to at over verified TLS unless at says to withhold. On a granted host it removes the sandbox's own
// credentials, then sets those whose grants fit. It fails with ErrUnavailable, having sent nothing, when a fitting secret has
// no usable value or two of them want the same header.
func (i *Injector) Apply(at Request, r *http.Request) (Applied, error) {
	if !i.Granted(at.Host) {
		return Applied{}, nil
	}
	done := Applied{Removed: RemoveCarriers(r), Scrub: i.scrubber(at)}
	if at.Withhold {
		return done, nil
	}
	set := make(map[string]string) // header to the secret that set it
	for _, s := range i.secrets {
		for _, g := range s.Grants {
			if !g.fits(at, r.Method, at.Path) {
				continue
			}
			name := http.CanonicalHeaderKey(g.Header)
			if by, taken := set[name]; taken {
				return done, fmt.Errorf("secrets %q and %q both set the header %s here: %w", by, s.ID, name, ErrUnavailable)
			}
			if s.Value.IsZero() || !fieldValue(s.Value.Reveal()) {
				return done, fmt.Errorf("secret %q: %w", s.ID, ErrUnavailable)
			}
			set[name] = s.ID
			r.Header[name] = []string{strings.Replace(g.Template, valueMark, string(s.Value.Reveal()), 1)}
			done.Uses = append(done.Uses, Use{s.ID, s.Version, "header:" + strings.ToLower(name)})
		}
	}
	return done, nil
}

// scrubber looks for every value that is granted to at's host and port under its policy, on whatever method and path.
func (i *Injector) scrubber(at Request) *Scrubber {
	key := Request{Host: at.Host, Port: at.Port, Policy: at.Policy}
	if made, ok := i.scrubbers.Load(key); ok {
		return made.(*Scrubber)
	}
	var all [][]byte
	bodies := false
	for _, s := range i.secrets {
		reaches := false
		for _, g := range s.Grants {
			if g.reaches(at) {
				reaches, bodies = true, bodies || g.Scrub == ScrubBodies
			}
		}
		if reaches && !s.Value.IsZero() {
			all = append(all, forms(s.Value.Reveal(), slices.ContainsFunc(s.Grants, Grant.basic))...)
		}
	}
	var made *Scrubber
	if len(all) > 0 {
		made = newScrubber(bodies, all)
		i.scrubbers.Store(key, made)
	}
	return made
}
