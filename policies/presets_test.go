package policies

import (
	"strings"
	"testing"
)

// Requests that the package managers and git make, in words: method, URL.
func TestPresetsInstallAndDontPublish(t *testing.T) {
	for preset, tests := range map[string]struct{ allowed, signed, denied string }{
		"package-registries": {
			allowed: `
				GET registry.npmjs.org/left-pad
				GET registry.npmjs.org/@types%2Fnode
				GET registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz
				POST registry.npmjs.org/-/npm/v1/security/advisories/bulk
				GET nodejs.org/dist/v22.0.0/node-v22.0.0-headers.tar.gz
				GET pypi.org/simple/requests/
				HEAD files.pythonhosted.org/packages/ab/cd/requests-2.0.whl
				GET proxy.golang.org/golang.org/x/net/@v/list
				GET sum.golang.org/lookup/golang.org/x/net@v0.62.0
				GET index.crates.io/se/rd/serde
				GET static.crates.io/crates/serde/serde-1.0.0.crate
				GET crates.io/api/v1/crates/serde/1.0.0/download
				GET rubygems.org/gems/rack-3.0.gem
				GET repo1.maven.org/maven2/junit/junit/4.13/junit-4.13.jar
				GET api.nuget.org/v3/index.json
				GET repo.packagist.org/p2/monolog/monolog.json
				GET conda.anaconda.org/conda-forge/linux-64/repodata.json
				GET deb.debian.org/debian/dists/trixie/InRelease
				GET archive.ubuntu.com/ubuntu/dists/noble/InRelease
				GET dl-cdn.alpinelinux.org/alpine/v3.22/main/x86_64/APKINDEX.tar.gz
				GET github.com/gradle/gradle-distributions/releases/download/v9.0/gradle-9.0-bin.zip`,
			signed: `
				GET release-assets.githubusercontent.com/github-production-release-asset/1/2
				GET storage.googleapis.com/proxy-golang-org-prod/abc/x.zip`,
			denied: `
				PUT registry.npmjs.org/left-pad
				PUT registry.npmjs.org/@acme%2Fstolen
				DELETE registry.npmjs.org/left-pad/-rev/1
				POST registry.npmjs.org/-/v1/login
				PUT registry.npmjs.org/-/user/org.couchdb.user:eve
				POST registry.npmjs.org/-/npm/v1/security/advisories/bulk/more
				PUT registry.yarnpkg.com/left-pad
				POST pypi.org/legacy/
				POST upload.pypi.org/legacy/
				GET upload.pypi.org/legacy/
				POST files.pythonhosted.org/packages/
				PUT crates.io/api/v1/crates/new
				DELETE crates.io/api/v1/crates/serde/1.0.0/yank
				PUT storage.googleapis.com/proxy-golang-org-prod/abc/x.zip
				GET storage.googleapis.com/evil-bucket/x
				GET storage.googleapis.com/proxy-golang-org-prod-evil/x
				POST rubygems.org/api/v1/gems
				PUT repo1.maven.org/maven2/com/acme/stolen.jar
				POST plugins.gradle.org/api/v1/publish
				PUT www.nuget.org/api/v2/package
				PUT deb.debian.org/debian/x
				GET github.com/acme/app/releases/download/v1/app.tar.gz
				PUT release-assets.githubusercontent.com/github-production-release-asset/1/2
				GET example.test/`,
		},
		"git-hosting": {
			allowed: `
				GET github.com/acme/app/info/refs
				GET github.com/acme/app.git/info/refs
				POST github.com/acme/app.git/git-upload-pack
				POST gitlab.com/group/sub/app.git/git-upload-pack
				GET gitlab.com/a/b/c/app.git/info/refs
				GET bitbucket.org/acme/app/info/refs
				GET github.com/acme/app/releases/download/v1/app.tar.gz
				GET github.com/acme/app/archive/refs/tags/v1.tar.gz
				GET codeload.github.com/acme/app/tar.gz/refs/heads/main
				GET raw.githubusercontent.com/acme/app/main/README.md`,
			signed: `
				GET release-assets.githubusercontent.com/github-production-release-asset/1/2
				GET objects.githubusercontent.com/github-production-release-asset-2e65be/1/2`,
			denied: `
				POST github.com/acme/app.git/git-receive-pack
				POST github.com/acme/app/git-receive-pack
				POST gitlab.com/a/b/c/app.git/git-receive-pack
				POST codeberg.org/acme/app.git/git-receive-pack
				POST bitbucket.org/acme/app.git/git-receive-pack
				POST github.com/acme/app.git/info/lfs/objects/batch
				PUT github.com/acme/app.git/info/refs
				POST github.com/acme/app/issues
				POST github.com/acme/app/git-upload-pack/git-receive-pack
				GET github.com/acme/app/settings
				POST github.com/session
				POST gist.github.com/
				POST api.github.com/gists
				GET api.github.com/user
				PUT raw.githubusercontent.com/acme/app/main/README.md`,
		},
		"ai-apis": {
			allowed: `
				POST api.openai.com/v1/chat/completions
				GET api.openai.com/v1/models
				POST api.anthropic.com/v1/messages
				GET api.anthropic.com/v1/models/claude
				POST generativelanguage.googleapis.com/v1beta/models/gemini-pro:generateContent
				POST api.mistral.ai/v1/chat/completions
				POST openrouter.ai/api/v1/chat/completions`,
			denied: `
				POST api.openai.com/v1/files
				POST api.openai.com/v1/uploads
				POST api.openai.com/v1/vector_stores
				POST api.openai.com/v1/fine_tuning/jobs
				GET api.openai.com/v1/organization/users
				POST api.anthropic.com/v1/files
				POST api.anthropic.com/v1/messages/batches
				POST generativelanguage.googleapis.com/upload/v1beta/files
				POST generativelanguage.googleapis.com/v1beta/cachedContents
				DELETE api.openai.com/v1/models/ft:x
				POST api.openai.com/v1/models/x`,
		},
	} {
		s := compileText(t, `{"presets": ["`+preset+`"]}`)
		checkLines(t, s, preset, tests.allowed, ReasonAllowed, ForeignBlock)
		checkLines(t, s, preset, tests.signed, ReasonAllowed, ForeignAllow)
		checkLines(t, s, preset, tests.denied, ReasonNoRule, ForeignBlock)
	}
}

// checkLines asks about each line, METHOD host/path; what is allowed has to be seen inside, with that word on foreign credentials.
func checkLines(t *testing.T, s *Snapshot, name, lines string, want Reason, foreign ForeignCredentials) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		method, url, _ := strings.Cut(strings.TrimSpace(line), " ")
		host, path, _ := strings.Cut(url, "/")
		r := request(host, method, "/"+path)
		v := s.Evaluate(&r)
		if v.Reason != want || v.Allowed() && (v.TLS != Inspect || v.Foreign != foreign || !v.Inside) || !v.Allowed() && !v.Requestable {
			t.Errorf("%s: %s: %+v", name, line, v)
		}
	}
}

// Nothing of a preset goes by in the clear but what is signed.
func TestPresetsAreNotClear(t *testing.T) {
	s := compileText(t, `{"presets": ["package-registries", "git-hosting", "ai-apis"]}`)
	for host, want := range map[string]bool{"deb.debian.org": true, "dl-cdn.alpinelinux.org": true, "registry.npmjs.org": false, "github.com": false, "api.openai.com": false} {
		r := Request{Stage: StageRequest, Host: host, Port: 80, Protocol: HTTP, Method: "GET", Path: "/a/b/info/refs", Now: testNow}
		if v := s.Evaluate(&r); v.Allowed() != want {
			t.Errorf("%s: %+v", host, v)
		}
	}
}

func TestGitAccess(t *testing.T) {
	const (
		fetch = `
			GET git.test/acme/app/info/refs
			GET git.test/acme/app.git/info/refs
			POST git.test/acme/app.git/git-upload-pack
			POST git.test/acme/app/git-upload-pack`
		push = `
			POST git.test/acme/app.git/git-receive-pack
			POST git.test/acme/app/git-receive-pack`
		lfs = `
			POST git.test/acme/app.git/info/lfs/objects/batch
			GET git.test/acme/app.git/info/lfs/objects/abc
			GET git.test/acme/app.git/gitlab-lfs/objects/abc`
		upload = `
			PUT git.test/acme/app.git/info/lfs/objects/abc
			PUT git.test/acme/app.git/gitlab-lfs/objects/abc/12
			POST git.test/acme/app.git/info/lfs/locks
			GET git.test/acme/app.git/info/lfs/locks/verify`
		never = `
			GET git.test/acme/app.git/git-receive-pack
			PUT git.test/acme/app.git/git-receive-pack
			GET git.test/acme/app
			POST git.test/acme/app.git/info/refs
			POST git.test/other/app.git/git-upload-pack
			POST git.test/acme/git-upload-pack
			POST git.test/acme/app/more/git-upload-pack
			POST git.test/acme%2Fapp/git-upload-pack
			DELETE git.test/acme/app.git/info/lfs/objects/abc`
	)
	for access, allowed := range map[string][]bool{ // fetch, push, lfs, upload
		"read": {true, false, false, false}, "write": {true, true, false, false},
		"read-lfs": {true, false, true, false}, "write-lfs": {true, true, true, true},
	} {
		for _, repository := range []string{"acme/*", "acme/app", "acme/app.git"} {
			s := compileText(t, `{"rules": [{"id": "r", "action": "allow", "git": "git.test/`+repository+`", "access": "`+access+`"}]}`)
			for i, lines := range []string{fetch, push, lfs, upload} {
				want := ReasonNoRule
				if allowed[i] {
					want = ReasonAllowed
				}
				checkLines(t, s, access+" "+repository, lines, want, ForeignBlock)
			}
			checkLines(t, s, access+" "+repository, never, ReasonNoRule, ForeignBlock)
			other := ReasonNoRule
			if repository == "acme/*" {
				other = ReasonAllowed
			}
			checkLines(t, s, access+" "+repository, "POST git.test/acme/other.git/git-upload-pack\nGET git.test/acme/app2/info/refs", other, ForeignBlock)
		}
	}
}

// What a git rule says beside its repository holds for all the rules that it stands for.
func TestGitRuleHandsOn(t *testing.T) {
	d, err := Parse([]byte(`{"rules": [{"id": "r", "action": "allow", "git": "git.test/acme/*", "access": "read", "ports": [8443],
		"foreign_credentials": "allow", "expires_at": "2026-02-01T00:00:00Z", "enabled": false}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range d.Rules {
		if !r.Disabled || r.ExpiresAt.IsZero() || r.Ports[0] != Port(8443) || *r.ForeignCredentials != ForeignAllow {
			t.Errorf("%+v", r)
		}
	}
}
