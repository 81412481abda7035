package policies

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLint(t *testing.T) {
	const ceiling = `{"rules": [
		{"id": "no", "action": "deny", "hosts": ["*.no.org.test"]},
		{"id": "org", "action": "allow", "hosts": ["*.org.test", "one.test"]},
		{"id": "net", "action": "allow", "cidrs": ["203.0.113.0/24"], "ports": [443]}]}`
	for name, tt := range map[string]struct {
		rules   string
		ceiling bool
		granted []string
		want    []string // path code
	}{
		"a plain rule":                        {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"]}`},
		"covered by a deny":                   {rules: `{"id": "a", "action": "allow", "hosts": ["x.a.test"]}, {"id": "b", "action": "deny", "hosts": ["*.a.test"]}`, want: []string{"rules[0] never_matches"}},
		"the apex is not covered":             {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"]}, {"id": "b", "action": "deny", "hosts": ["*.a.test"]}`},
		"one of two covered":                  {rules: `{"id": "a", "action": "allow", "hosts": ["b.test", "x.a.test"]}, {"id": "b", "action": "deny", "hosts": ["*.a.test"]}`, want: []string{"rules[0].hosts[1] never_matches"}},
		"covered by two denies":               {rules: `{"id": "a", "action": "allow", "hosts": ["b.test", "x.a.test"]}, {"id": "b", "action": "deny", "hosts": ["*.a.test"]}, {"id": "c", "action": "deny", "any": true, "ports": [443]}`, want: []string{"rules[0] never_matches"}},
		"a deny for another port":             {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"]}, {"id": "b", "action": "deny", "hosts": ["a.test"], "ports": [80]}`},
		"a deny of some methods":              {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"], "tls": "inspect"}, {"id": "b", "action": "deny", "hosts": ["a.test"], "tls": "inspect", "methods": ["POST"]}`},
		"a deny of its methods":               {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"], "tls": "inspect", "methods": ["POST"]}, {"id": "b", "action": "deny", "hosts": ["a.test"], "tls": "inspect", "methods": ["POST", "PUT"]}`, want: []string{"rules[0] never_matches"}},
		"a deny of its paths":                 {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"], "tls": "inspect", "paths": ["/a/b/*"]}, {"id": "b", "action": "deny", "hosts": ["a.test"], "tls": "inspect", "paths": ["/a/**"]}`, want: []string{"rules[0] never_matches"}},
		"a deny of other paths":               {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"], "tls": "inspect", "paths": ["/a/**"]}, {"id": "b", "action": "deny", "hosts": ["a.test"], "tls": "inspect", "paths": ["/a/b/*"]}`},
		"a deny that ends first":              {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"]}, {"id": "b", "action": "deny", "hosts": ["a.test"], "expires_at": "2026-03-01T00:00:00Z"}`},
		"a deny that is off":                  {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"]}, {"id": "b", "action": "deny", "hosts": ["a.test"], "enabled": false}`},
		"a range in a denied range":           {rules: `{"id": "a", "action": "allow", "cidrs": ["203.0.113.0/28"], "ports": [443]}, {"id": "b", "action": "deny", "cidrs": ["203.0.112.0/22"]}`, want: []string{"rules[0] never_matches"}},
		"a range around a denied one":         {rules: `{"id": "a", "action": "allow", "cidrs": ["203.0.112.0/22"], "ports": [443]}, {"id": "b", "action": "deny", "cidrs": ["203.0.113.0/28"]}`},
		"outside the ceiling":                 {ceiling: true, rules: `{"id": "a", "action": "allow", "hosts": ["a.test"]}`, want: []string{"rules[0] outside_ceiling"}},
		"some outside the ceiling":            {ceiling: true, rules: `{"id": "a", "action": "allow", "hosts": ["a.org.test", "a.test"]}`, want: []string{"rules[0].hosts[1] outside_ceiling"}},
		"inside the ceiling":                  {ceiling: true, rules: `{"id": "a", "action": "allow", "hosts": ["a.org.test", "one.test"]}`},
		"around what the ceiling allows":      {ceiling: true, rules: `{"id": "a", "action": "allow", "hosts": ["*.one.test"]}, {"id": "b", "action": "allow", "hosts": ["*.test"], "shared": true}, {"id": "c", "action": "allow", "cidrs": ["203.0.112.0/22"], "ports": [443]}`, want: []string{"rules[0] outside_ceiling", "rules[0] shadowed", "rules[1].hosts[0] broad"}},
		"around what it allows, at its start": {ceiling: true, rules: `{"id": "c", "action": "allow", "cidrs": ["203.0.112.0/22", "203.0.113.0/25", "203.0.113.0/24"], "ports": [443]}`},
		"outside by method":                   {ceiling: true, rules: `{"id": "a", "action": "allow", "hosts": ["read.org.test"], "tls": "inspect", "methods": ["PUT"]}`},
		"a range twice":                       {rules: `{"id": "a", "action": "allow", "cidrs": ["203.0.113.0/28"], "ports": [443]}, {"id": "b", "action": "allow", "cidrs": ["203.0.113.0/24"], "ports": [443]}`, want: []string{"rules[0] shadowed"}},
		"a range beside everywhere":           {rules: `{"id": "a", "action": "allow", "cidrs": ["203.0.113.0/28"], "ports": [443]}, {"id": "b", "action": "allow", "cidrs": ["0.0.0.0/0"], "ports": [443]}`, want: []string{"rules[1].cidrs[0] broad"}},
		"a grant on another port":             {granted: []string{"a.test", "not a host"}, rules: `{"id": "a", "action": "allow", "hosts": ["a.test"], "ports": [8443]}`, want: []string{"rules[0].tls pass_with_grant"}},
		"outside by port":                     {ceiling: true, rules: `{"id": "a", "action": "allow", "hosts": ["one.test"], "ports": [8443]}`, want: []string{"rules[0] outside_ceiling"}},
		"outside by range":                    {ceiling: true, rules: `{"id": "a", "action": "allow", "cidrs": ["198.51.100.0/24"], "ports": [443]}`, want: []string{"rules[0] outside_ceiling"}},
		"denied by the ceiling":               {ceiling: true, rules: `{"id": "a", "action": "allow", "hosts": ["x.no.org.test"]}`, want: []string{"rules[0] outside_ceiling"}},
		"everything under a ceiling":          {ceiling: true, rules: `{"id": "a", "action": "allow", "any": true}`, want: []string{"rules[0].any broad"}},
		"twice":                               {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"]}, {"id": "b", "action": "allow", "hosts": ["a.test"]}`, want: []string{"rules[1] shadowed"}},
		"narrower, and the same":              {rules: `{"id": "a", "action": "allow", "hosts": ["x.a.test"]}, {"id": "b", "action": "allow", "hosts": ["*.a.test"], "ports": [443, 8443]}`, want: []string{"rules[0] shadowed"}},
		"narrower, and opened":                {rules: `{"id": "a", "action": "allow", "hosts": ["x.a.test"], "tls": "inspect"}, {"id": "b", "action": "allow", "hosts": ["*.a.test"]}`},
		"named beside everything":             {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"]}, {"id": "b", "action": "allow", "any": true}`, want: []string{"rules[1].any broad"}},
		"denied twice":                        {rules: `{"id": "a", "action": "deny", "hosts": ["x.a.test"]}, {"id": "b", "action": "deny", "hosts": ["*.a.test"]}`, want: []string{"rules[0] shadowed"}},
		"denied in other words":               {rules: `{"id": "a", "action": "deny", "hosts": ["x.a.test"], "message": "ask me"}, {"id": "b", "action": "deny", "hosts": ["*.a.test"]}`},
		"limits beside a pass":                {rules: `{"id": "a", "action": "allow", "hosts": ["x.a.test"], "tls": "inspect", "methods": ["GET"]}, {"id": "b", "action": "allow", "hosts": ["*.a.test"]}`, want: []string{"rules[0].hosts[0] pass_with_methods"}},
		"limits beside a pass elsewhere":      {rules: `{"id": "a", "action": "allow", "hosts": ["x.a.test"], "tls": "inspect", "methods": ["GET"]}, {"id": "b", "action": "allow", "hosts": ["*.a.test"], "ports": [8443]}`},
		"limits beside none":                  {rules: `{"id": "a", "action": "allow", "hosts": ["a.test"], "tls": "inspect", "methods": ["GET"]}, {"id": "b", "action": "allow", "hosts": ["a.test"], "tls": "inspect"}`, want: []string{"rules[0] shadowed"}},
		"a grant on what is passed":           {granted: []string{"x.a.test"}, rules: `{"id": "a", "action": "allow", "hosts": ["*.a.test"]}`, want: []string{"rules[0].tls pass_with_grant"}},
		"a grant on what is opened":           {granted: []string{"x.a.test"}, rules: `{"id": "a", "action": "allow", "hosts": ["*.a.test"], "tls": "inspect"}`},
		"a grant opened by a closer rule":     {granted: []string{"x.a.test"}, rules: `{"id": "a", "action": "allow", "hosts": ["*.a.test"]}, {"id": "b", "action": "allow", "hosts": ["x.a.test"], "tls": "inspect"}`},
		"a grant elsewhere":                   {granted: []string{"b.test"}, rules: `{"id": "a", "action": "allow", "hosts": ["*.a.test"]}`},
		"a grant on a raw protocol":           {granted: []string{"a.test"}, rules: `{"id": "a", "action": "allow", "hosts": ["a.test"], "protocols": ["https", "ssh"], "tls": "inspect"}`, want: []string{"rules[0].protocols pass_with_grant"}},
		"a paste host":                        {rules: `{"id": "a", "action": "allow", "hosts": ["pastebin.com"]}`, want: []string{"rules[0].hosts[0] shared_storage"}},
		"a paste host, read only":             {rules: `{"id": "a", "action": "allow", "hosts": ["pastebin.com"], "tls": "inspect", "methods": ["GET"]}`},
		"one bucket":                          {rules: `{"id": "a", "action": "allow", "hosts": ["acme.s3.amazonaws.com"]}`},
		"a bucket by its path":                {rules: `{"id": "a", "action": "allow", "hosts": ["s3.amazonaws.com"], "tls": "inspect", "paths": ["/acme/**"]}`},
		"every bucket":                        {rules: `{"id": "a", "action": "allow", "hosts": ["*.s3.amazonaws.com"], "shared": true}`, want: []string{"rules[0].hosts[0] broad", "rules[0].hosts[0] shared_storage"}},
		"every bucket, read only":             {rules: `{"id": "a", "action": "allow", "hosts": ["*.s3.amazonaws.com"], "shared": true, "tls": "inspect", "methods": ["GET"]}`, want: []string{"rules[0].hosts[0] broad", "rules[0].hosts[0] shared_storage"}},
		"a wildcard around buckets":           {rules: `{"id": "a", "action": "allow", "hosts": ["*.amazonaws.com"]}`, want: []string{"rules[0].hosts[0] shared_storage"}},
		"a wildcard around drives":            {rules: `{"id": "a", "action": "allow", "hosts": ["*.google.com"]}`, want: []string{"rules[0].hosts[0] shared_storage"}},
		"a request catcher":                   {rules: `{"id": "a", "action": "allow", "hosts": ["x7.oast.fun"], "tls": "inspect", "methods": ["GET"]}`, want: []string{"rules[0].hosts[0] shared_storage"}},
		"a host that ends alike":              {rules: `{"id": "a", "action": "allow", "hosts": ["myoast.fun", "notpastebin.com"]}`},
		"denying storage":                     {rules: `{"id": "a", "action": "deny", "hosts": ["*.s3.amazonaws.com", "webhook.site"]}`},
		"ended":                               {rules: `{"id": "a", "action": "allow", "hosts": ["pastebin.com"], "expires_at": "2026-01-31T12:00:00Z"}`, want: []string{"rules[0].expires_at expired"}},
		"off":                                 {rules: `{"id": "a", "action": "allow", "hosts": ["pastebin.com"], "enabled": false}`},
		"wide":                                {rules: `{"id": "a", "action": "allow", "cidrs": ["203.0.0.0/15", "2600::/16", "203.0.113.0/24"], "ports": ["1-2000"]}`, want: []string{"rules[0].cidrs[0] broad", "rules[0].cidrs[1] broad", "rules[0].ports broad"}},
	} {
		o := LintOptions{Now: testNow, Granted: tt.granted, Floor: labFloor, Org: "org_1"}
		if tt.ceiling {
			o.Ceiling = parse(t, ceiling)
		}
		var got []string
		for _, f := range Lint(parse(t, `{"rules": [`+tt.rules+`]}`), o) {
			got = append(got, f.Path+" "+f.Code)
			if f.Message == "" || f.Hint == "" || f.Rule == "" || !slices.Contains(Findings(), f.Code) {
				t.Errorf("%s: %+v", name, f)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// Findings come in the order of the document.
func TestLintInOrder(t *testing.T) {
	d := parse(t, `{"rules": [], "tests": [{"name": "t", "host": "a.test", "expect": "deny", "rule": "gone"}]}`)
	for i := range 12 {
		d.Rules = append(d.Rules, Rule{ID: fmt.Sprintf("r%d", i), Action: Allow, Hosts: []string{fmt.Sprintf("h%d.test", i), "pastebin.com", "webhook.site"}, Ports: []PortRange{Port(uint16(i + 1))}})
	}
	last := -1
	for _, f := range Lint(d, LintOptions{}) {
		at, host := 12, 9
		fmt.Sscanf(f.Path, "rules[%d].hosts[%d]", &at, &host)
		if at*10+host <= last {
			t.Errorf("%s comes too late", f.Path)
		}
		last = at*10 + host
	}
	if last != 129 {
		t.Errorf("%d", last)
	}
}

func TestLintOfWhatIsRefused(t *testing.T) {
	d := &Document{Rules: []Rule{
		{ID: "a", Action: Allow, Hosts: []string{"a.test"}, Methods: []string{"GET"}},
		{ID: "b", Action: Allow, Hosts: []string{"a..test"}},
	}}
	got := Lint(d, LintOptions{})
	if len(got) != 2 || got[0].Code != FindPassWithMethods || got[0].Rule != "a" || got[0].Path != "rules[0].methods" || got[1].Code != FindInvalid || got[1].Rule != "b" {
		t.Errorf("%+v", got)
	}
	d = parse(t, `{"rules": [{"id": "a", "action": "allow", "hosts": ["a.test"]}], "tests": [{"name": "t", "host": "a.test", "expect": "allow", "rule": "b"}]}`)
	if got := Lint(d, LintOptions{}); len(got) != 1 || got[0].Code != FindTestWithoutRule || got[0].Path != "tests[0].rule" {
		t.Errorf("%+v", got)
	}
}

// Nobody is warned of what we hand out ourselves.
func TestPresetsAreClean(t *testing.T) {
	d := parse(t, `{"presets": ["package-registries", "git-hosting", "ai-apis"], "rules": [{"id": "app", "action": "allow", "git": "github.com/acme/*", "access": "write"}]}`)
	for _, f := range Lint(d, LintOptions{Now: testNow, Granted: []string{"api.openai.com", "github.com"}}) {
		if f.Code != FindShadowed { // what the git rule reads, the preset lets read anyway
			t.Errorf("%+v", f)
		}
	}
}

// A rule that is said never to match, to lie outside the ceiling, or to be said already, can go without a change of any verdict.
func TestLintTellsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, ceiling := drawDocument(t), drawDocument(t)
		d.ObserveUntil, ceiling.ObserveUntil = time.Time{}, time.Time{}
		o := LintOptions{Now: testNow, Floor: pick(t, "floor", []*Floor{{}, labFloor}), Org: "org_1"}
		if rapid.Bool().Draw(t, "under") {
			o.Ceiling = ceiling
		}
		for _, f := range Lint(d, o) {
			if f.Code != FindNeverMatches && f.Code != FindOutsideCeiling && f.Code != FindShadowed && f.Code != FindExpired {
				continue
			}
			without := *d
			without.Rules = slices.Clone(d.Rules)
			at := slices.IndexFunc(d.Rules, func(r Rule) bool { return r.ID == f.Rule })
			drop(&without, at, strings.TrimPrefix(f.Path, fmt.Sprintf("rules[%d]", at)))
			layers := func(d *Document) []Layer {
				all := []Layer{{Name: "policy", Document: d}}
				if o.Ceiling != nil {
					all = append([]Layer{{Name: "ceiling", Document: ceiling}}, all...)
				}
				return all
			}
			a, errA := Compile(layers(d)...)
			b, errB := Compile(layers(&without)...)
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			for range 20 {
				r := drawRequest(t)
				r.Now = testNow
				if r.Stage == StageName {
					continue // what is known of a name only is refused later
				}
				x, y := o.Floor.Evaluate(o.Org, a, &r), o.Floor.Evaluate(o.Org, b, &r)
				if x.Action != y.Action || x.Allowed() && f.Code == FindShadowed && (x.TLS != y.TLS || x.Foreign != y.Foreign || x.DNS != y.DNS || x.Log != y.Log) {
					t.Fatalf("%+v\nrequest %+v\n%+v\n%+v", f, r, x, y)
				}
			}
		}
	})
}

// drop takes out the rule, or one destination of it.
func drop(d *Document, at int, field string) {
	var n int
	r := &d.Rules[at]
	switch {
	case strings.HasPrefix(field, ".hosts"):
		fmt.Sscanf(field, ".hosts[%d]", &n)
		r.Hosts = slices.Delete(slices.Clone(r.Hosts), n, n+1)
	case strings.HasPrefix(field, ".cidrs"):
		fmt.Sscanf(field, ".cidrs[%d]", &n)
		r.CIDRs = slices.Delete(slices.Clone(r.CIDRs), n, n+1)
	default:
		d.Rules = slices.Delete(d.Rules, at, at+1)
	}
}

// A document of the greatest size is linted in a second or two, also where everything meets everything.
func TestLintOfMuch(t *testing.T) {
	d := &Document{}
	for i := range 4000 {
		d.Rules = append(d.Rules,
			Rule{ID: fmt.Sprintf("a%d", i), Action: Allow, Hosts: []string{"*.a.test", fmt.Sprintf("h%d.a.test", i)}, TLS: Inspect, Paths: []string{fmt.Sprintf("/%d/**", i)}},
			Rule{ID: fmt.Sprintf("c%d", i), Action: Allow, CIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0}), 24+i%9)}, Ports: []PortRange{Port(443)}})
	}
	start := time.Now()
	if got := Lint(d, LintOptions{Now: testNow, Ceiling: d, Granted: []string{"h1.a.test"}}); len(got) > maxFindings {
		t.Errorf("%d findings", len(got))
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}
