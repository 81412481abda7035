package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"portreeve.dev/gateway/role"
)

func TestProxyIsReadStrictly(t *testing.T) {
	for upstream, want := range map[string]string{
		"{}":                            "",
		"{url: 'http://10.0.0.5:3128'}": "",
		"{url: 'socks5://[fd12::5]:1080', connect_by: name, direct_orgs: [acme]}":                        "",
		"{url: 'https://proxy.test:3128', addresses: [127.0.0.1], user: gateway, password_file: /etc/p}": "",
		"{addresses: [10.0.0.5]}":                                         "egress.upstream.url",
		"{url: 'ftp://10.0.0.5:3128'}":                                    "egress.upstream.url",
		"{url: 'socks5h://10.0.0.5:3128'}":                                "connect_by: name",
		"{url: 'http://10.0.0.5'}":                                        "no port",
		"{url: 'http://10.0.0.5:0'}":                                      "no port",
		"{url: 'http://10.0.0.5:3128/x'}":                                 "behind the port",
		"{url: 'http://me:opensesame@10.0.0.5:3128'}":                     "password_file",
		"{url: 'http://me:opensesame@10.0.0.5:3128:%'}":                   "egress.upstream.url",
		"{url: 'http://proxy.test:3128'}":                                 "egress.upstream.addresses",
		"{url: 'http://Proxy.test:3128', addresses: [10.0.0.5]}":          "lower case",
		"{url: 'http://10.0.0.5:3128', addresses: [10.0.0.6]}":            "egress.upstream.addresses",
		"{url: 'http://proxy.test:3128', addresses: [other.test]}":        "egress.upstream.addresses",
		"{url: 'http://proxy.test:3128', addresses: ['::ffff:10.0.0.5']}": "egress.upstream.addresses",
		"{url: 'http://169.254.169.254:80'}":                              "no proxy is at",
		"{url: 'http://0.0.0.0:3128'}":                                    "no proxy is at",
		"{url: 'http://198.18.0.5:3128'}":                                 "which is ours",
		"{url: 'http://10.200.0.5:3128'}":                                 "which is ours",
		"{url: 'http://10.0.0.5:3128', user: gateway}":                    "go together",
		"{url: 'http://10.0.0.5:3128', password_file: /etc/p}":            "go together",
		"{url: 'http://10.0.0.5:3128', connect_by: dns}":                  "egress.upstream.connect_by",
		"{url: 'http://10.0.0.5:3128', direct_orgs: ['*']}":               "egress.upstream.direct_orgs",
	} {
		_, err := Parse([]byte("egress: {upstream: " + upstream + "}"))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", upstream, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "opensesame")):
			t.Errorf("%s: %v, want %q", upstream, err, want)
		}
	}
	c, err := Parse([]byte("egress: {floor_exempt: [{cidr: 10.0.0.0/16}], upstream: {url: 'https://proxy.test:3128', addresses: [10.0.0.5, 'fd12::5'], connect_by: name}}"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Egress.Upstream.Proxy()
	want := &role.UpstreamProxy{Scheme: "https", Name: "proxy.test", ByName: true,
		Addrs: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.5:3128"), netip.MustParseAddrPort("[fd12::5]:3128")}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	closed := []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32"), netip.MustParsePrefix("fd12::5/128")}
	if diff := cmp.Diff(closed, c.AlwaysClosed(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}
