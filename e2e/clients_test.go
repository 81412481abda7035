package e2e

import (
	"fmt"
	"strings"
	"testing"

	"portreeve.dev/lab"
)

// clientPackages are Debian's packages with the clients that base does not have.
var clientPackages = []string{"chromium-headless-shell", "libnss3-tools", "npm", "python3-pip", "python3-requests"}

// clients are commands that ask for $URL, a path below https://api.test that is theirs alone. $TRUST is the folder of the files
// that tell whom to trust.
var clients = []struct{ name, script string }{
	{"curl", `curl -sS "$URL"`},
	{"git", `git ls-remote "$URL"`},
	{"wget", `wget -O- -t 1 "$URL"`},
	{"python's urllib", `python3 -c 'import os, urllib.request as u; print(u.urlopen(os.environ["URL"]).status)'`},
	{"python's requests", `python3 -c 'import os, requests; print(requests.get(os.environ["URL"]).status_code)'`},
	{"pip", `pip download --no-deps --no-cache-dir --retries 0 --disable-pip-version-check -d /tmp/pip -i "$URL" thing`},
	{"node's fetch", `node -e 'fetch(process.env.URL).then(r => console.log(r.status), e => { console.log(e.cause); process.exit(1) })'`},
	{"node's https", `node -e 'require("https").get(process.env.URL, r => process.exit(0)).on("error", e => { console.log(e); process.exit(1) })'`},
	{"npm", `npm view --fetch-retries=0 --cache /tmp/npm --registry "$URL/" thing`},
	{"Go", `/workspace/hostile opened "{\"to\":\"api.test:443\",\"requests\":[{\"method\":\"GET\",\"host\":\"api.test\",\"target\":\"${URL#https://api.test}\"}]}"`},
	// A browser has a store of its own, which the sandbox's user fills: docs/trust.md says so with these words.
	{"Chromium", `export HOME=/tmp/home-$RANDOM; mkdir -p $HOME/.pki/nssdb
certutil -d sql:$HOME/.pki/nssdb -N --empty-password
certutil -d sql:$HOME/.pki/nssdb -A -n portreeve -t C,, -i $TRUST/ca.pem
chromium-headless-shell --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom "$URL"`},
}

// TestClientsTrustTheOrgsAuthority: each client of Debian's gets through opened TLS with what a sandbox is given, and with the
// same files of another org's it does not: then nothing of its request leaves it.
func TestClientsTrustTheOrgsAuthority(t *testing.T) {
	t.Parallel()
	l, p := withBase(t, clientPackages...)
	ceiling(t, p, inspect("api", "api.test"))
	b := armed(t, p, "template", "base", "memory", "2Gi", "cpus", "2")
	b.strangersTrust()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			slug := "/" + strings.NewReplacer(" ", "-", "'", "").Replace(c.name)
			for _, where := range []struct {
				name, trust string
				want        bool
			}{{"ours", "/etc/portreeve", true}, {"a stranger's", "/workspace/trust", false}} {
				path := fmt.Sprint(slug, "/", len(where.name))
				script := fmt.Sprintf(`for v in $(env | grep =/etc/portreeve/ | cut -d= -f1); do export "$v=%[1]s/${!v##*/}"; done
export URL=https://api.test%[2]s TRUST=%[1]s
%[3]s`, where.trust, path, c.script)
				r := b.exec("bash", "-c", script)
				if got := arrived(l, "api.test", path); got != where.want {
					t.Errorf("under %s authority its request arrived: %v, want %v: %+v", where.name, got, where.want, r)
				}
			}
		})
	}
	quiet(t, l, "after all")
}

// arrived says whether a request below path came to a host.
func arrived(l *lab.Lab, host, path string) bool {
	for _, r := range l.Web.Requests(host) {
		if strings.HasPrefix(r.URI, path) {
			return true
		}
	}
	return false
}

// strangersTrust puts another org's files beside the sandbox's own, under /workspace/trust.
func (b *box) strangersTrust() {
	b.t.Helper()
	other := sandbox(b.t, otherOrg(b.t, b.p))
	for _, file := range []string{"ca.pem", "bundle.pem", "wgetrc"} {
		r := other.exec("cat", "/etc/portreeve/"+file)
		if r.Code != 0 || r.Stdout == "" {
			b.t.Fatalf("%s of another org: %+v", file, r)
		}
		b.write("/workspace/trust/"+file, []byte(strings.ReplaceAll(r.Stdout, "/etc/portreeve/", "/workspace/trust/")))
	}
}
