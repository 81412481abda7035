package policies

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The known form is the settings document of the API that we are compatible with: one mode, and one list for it.
var (
	knownKeys  = []string{"mode", "allowed_domains", "denied_domains", "allowed_ports", "enforcement", "failure_mode", "max_stale", "observe_until"}
	knownModes = []string{"allow_all", "allowed_domains", "denied_domains", "allowed_ports"}
)

// observeByDefault is the end of a log_only that names none.
const observeByDefault = 24 * time.Hour

// What a converted rule lets through where names matter: not raw bytes, which would hide a foreign server name from the proxy.
const knownByName = AllProtocols &^ TCP

var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// knownForm converts to rules:
//
//   - allow_all and allowed_ports allow every host and every address, on every port or the listed ones;
//   - allowed_domains allows the names as written, on every port;
//   - denied_domains denies each name and all below it, and allows every other name. Addresses stay closed,
//     as a denied name could be reached by its address.
func (r *reader) knownForm(n *node) *Document {
	d := &Document{}
	fields := r.object(n, "", knownKeys)
	mode := ""
	if fields["mode"] == nil {
		r.errs.add("mode", "use one of "+strings.Join(knownModes, ", "), "is missing")
	} else {
		mode = knownModes[r.choice(fields["mode"], "mode", knownModes)]
	}
	for _, list := range knownModes[1:] {
		v := fields[list]
		if v == nil || v.kind == kindNull || v.kind == kindList && len(v.values) == 0 {
			delete(fields, list)
		} else if list != mode {
			r.errs.add(list, "one mode has one list; to combine them, write rules", "has no effect in mode %q", mode)
		}
	}
	switch mode {
	case "allow_all":
		d.Rules = knownEverything([]PortRange{EveryPort})
	case "allowed_ports":
		if v := fields[mode]; v != nil {
			d.Rules = knownEverything(r.ports(v, mode, MaxPorts))
		}
	case "allowed_domains":
		d.Rules = knownHosts(mode, Allow, r.domains(fields[mode], mode))
	case "denied_domains":
		var hosts []string
		for _, host := range r.domains(fields[mode], mode) {
			hosts = append(hosts, host)
			if below := "*." + host; !strings.HasPrefix(host, "*.") {
				hosts = append(hosts, below)
			}
		}
		others := knownEverything([]PortRange{EveryPort})[0]
		others.Protocols = knownByName
		d.Rules = append(knownHosts(mode, Deny, hosts), others)
	}
	r.failure(fields, d)
	r.enforcement(fields["enforcement"], d)
	return d
}

// domains reads a list, the names of which Normal checks; here too, as its errors would name a rule that nobody wrote.
func (r *reader) domains(n *node, path string) []string {
	if n == nil {
		return nil
	}
	hosts := r.strings(n, path, MaxRules)
	action := Allow
	if path == "denied_domains" {
		action = Deny
	}
	for i, host := range hosts {
		if _, problem, hint := checkHost(host, action, false); problem != "" {
			r.errs.add(at(path, i), hint, "%s", problem)
		}
	}
	return hosts
}

func (r *reader) enforcement(n *node, d *Document) {
	if n == nil || r.choice(n, "enforcement", []string{"enforce", "log_only"}) == 0 || !d.ObserveUntil.IsZero() {
		return
	}
	if r.now.IsZero() {
		r.errs.add("enforcement", "add observe_until, the time at which the rules begin to hold", "log_only needs an end")
		return
	}
	d.ObserveUntil = r.now.Add(observeByDefault).Truncate(time.Second)
}

// knownEverything is two rules: every host, every address.
func knownEverything(ports []PortRange) []Rule {
	foreign := ForeignAllow
	hosts := Rule{ID: "all-hosts", Action: Allow, Any: true, Ports: ports, Protocols: AllProtocols, ForeignCredentials: &foreign}
	addrs := hosts
	addrs.ID, addrs.Any, addrs.CIDRs = "all-addresses", false, everywhere
	return []Rule{hosts, addrs}
}

// knownHosts puts the hosts into as few rules as hold them.
func knownHosts(mode string, action Action, hosts []string) []Rule {
	var rules []Rule
	for chunk := range slices.Chunk(hosts, MaxTargets) {
		rule := Rule{ID: strings.ReplaceAll(mode, "_", "-"), Action: action, Hosts: chunk}
		if len(rules) > 0 {
			rule.ID = fmt.Sprintf("%s-%d", rule.ID, len(rules)+1)
		}
		if action == Allow {
			foreign := ForeignAllow
			rule.Ports, rule.Protocols, rule.ForeignCredentials = []PortRange{EveryPort}, knownByName, &foreign
		}
		rules = append(rules, rule)
	}
	return rules
}
