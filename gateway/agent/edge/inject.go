package edge

import (
	"context"
	"fmt"
	"net/http"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/flows"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/secrets"
)

// injector puts the secrets of the newest policy into requests; without a fresh one there are none. Under a last known policy what
// it granted counts as granted, so that requests there are refused; without any policy every host does, so that nothing passes as it came.
type injector struct{ holder *feed.Holder }

func (i injector) Granted(b egress.Binding, host string) bool {
	return i.holder.Granted(b, host)
}

func (i injector) Apply(_ context.Context, b egress.Binding, to proxy.Place, r *http.Request) (proxy.Injection, error) {
	held, policy, err := i.holder.Injector(b)
	if err != nil {
		return proxy.Injection{}, fmt.Errorf("secrets for %q: %w", b.Sandbox, err)
	}
	done, err := held.Apply(secrets.Request{Host: to.Host, Port: to.Port, Policy: policy, Path: to.Path, Withhold: to.Withhold}, r)
	if err != nil {
		return proxy.Injection{}, err
	}
	in := proxy.Injection{Scrub: done.Scrub}
	for _, u := range done.Uses {
		in.Uses = append(in.Uses, decisions.Use{Secret: u.Secret, Version: u.Version, Place: u.Place})
	}
	return in, nil
}

// Current reports whether a secret is still granted to the host in the version that was used.
func (i injector) Current(b egress.Binding, host string, port uint16, u decisions.Use) bool {
	version, ok := i.granted(b, host, port, u.Secret)
	return ok && version == u.Version
}

// holds reports whether a secret is still granted to the host, in whatever version.
func (i injector) holds(b egress.Binding, host string, port uint16, c flows.Carried) bool {
	_, ok := i.granted(b, host, port, c.Secret)
	return ok
}

func (i injector) granted(b egress.Binding, host string, port uint16, secret string) (version int64, ok bool) {
	held, policy, err := i.holder.Injector(b)
	if err != nil {
		return 0, false
	}
	return held.Version(secret, secrets.Request{Host: host, Port: port, Policy: policy})
}
