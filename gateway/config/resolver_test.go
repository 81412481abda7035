package config

import (
	"slices"
	"strings"
	"testing"
)

// TestResolversAreAllOverTLSOrNone: a list of both would send in the clear what the first can't answer.
func TestResolversAreAllOverTLSOrNone(t *testing.T) {
	for egress, want := range map[string]string{
		"upstream_dns: [192.0.2.53, '[2001:db8::53]:53']":                                         "",
		"upstream_dns: ['tls://192.0.2.53', 'tls://192.0.2.54:853#dns.test']":                     "",
		"upstream_dns: ['tls://192.0.2.53', 192.0.2.54]":                                          "egress.upstream_dns[1]",
		"upstream_dns: [192.0.2.54, 'tls://192.0.2.53']":                                          "egress.upstream_dns[1]",
		"upstream_dns: ['tls://dns.test']":                                                        "egress.upstream_dns[0]",
		"upstream_dns: ['tls://192.0.2.53'], upstream: {url: 'http://10.0.0.5:3128', dns: proxy}": "",
		"upstream_dns: [192.0.2.53], upstream: {url: 'http://10.0.0.5:3128', dns: proxy}":         "egress.upstream_dns[0]",
		"upstream: {url: 'http://10.0.0.5:3128', dns: proxy}":                                     "egress.upstream.dns",
		"upstream: {url: 'http://10.0.0.5:3128', dns: tcp}":                                       "egress.upstream.dns",
	} {
		_, err := Parse([]byte("egress: {" + egress + "}"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", egress, err, want)
		}
	}
	c, err := Parse([]byte("egress: {upstream_dns: ['tls://192.0.2.53']}"))
	if err != nil || !slices.Equal(c.Egress.UpstreamDNS, []string{"tls://192.0.2.53:853#192.0.2.53"}) {
		t.Errorf("%v, %v", c, err)
	}
}
