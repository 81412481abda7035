package proxy

import (
	"net/http"
	"strings"

	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
	"portreeve.dev/secrets"
)

// maxForeign bounds what a decision lists of a request's own credentials.
const maxForeign = 16

// granted reports whether a secret is granted to the host that the connection is to. Then nothing may pass unseen: the sandbox
// could use an account of its own.
func (c *connection) granted() bool { return c.grantedTo(c.host) }

func (c *connection) grantedTo(host string) bool {
	return host != "" && !c.local && c.p.cfg.Injector != nil && c.p.cfg.Injector.Granted(c.binding, host)
}

// grantedTLS asks the same about a connection by address: the server name is only a claim there, but one that the upstream
// goes by.
func (c *connection) grantedTLS(serverName []byte) bool {
	if c.host != "" || len(serverName) == 0 {
		return c.granted()
	}
	name, err := hostname.Normalize(string(serverName))
	return err != nil || c.grantedTo(name)
}

// takeForeign finds the credentials of the sandbox's own and takes them out of the request, or returns false where the rule
// blocks it for them.
func (x *exchange) takeForeign(out *http.Request, granted bool, how policies.ForeignCredentials) bool {
	switch {
	case granted, how == policies.ForeignStrip:
		x.note(out)
		secrets.RemoveCarriers(out)
		return true
	case how == policies.ForeignAllow:
		return true
	}
	return !x.note(out)
}

// note keeps for the record which credentials a request carries: where, and a hash of each.
func (x *exchange) note(out *http.Request) (any bool) {
	var key []byte
	if x.p.cfg.HashKey != nil {
		key = x.p.cfg.HashKey(x.c.binding)
	}
	found := secrets.Prints(out, key)
	for _, f := range found[:min(len(found), maxForeign)] {
		x.foreign = append(x.foreign, string(f.Place))
		if len(key) > 0 {
			x.foreignHash = append(x.foreignHash, f.Hash)
		}
	}
	return len(found) > 0
}

// denyForeign refuses a request for the credentials that it carries.
func (x *exchange) denyForeign(j judgement) {
	j = j.deny(policies.ReasonForeign)
	j.v.Message = policies.ReasonForeign.Guidance() + " Found: " + strings.Join(x.foreign, ", ") + "."
	x.deny(j, 0)
}
