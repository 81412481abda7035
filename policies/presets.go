package policies

import (
	"slices"
	"strings"
)

// A Preset is a set of rules under a name. A document that names it gets the rules written out, with their ids: what is in force
// is always visible, and stays as it is when a later release knows the preset otherwise.
type Preset struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Rules       []Rule `json:"rules"`
}

// Presets returns all presets, with their rules in normal form. The caller may change the result.
func Presets() []Preset {
	all := make([]Preset, len(presets))
	for i, p := range presets {
		d, err := (&Document{Rules: p.rules()}).Normal()
		if err != nil {
			panic("policies: preset " + p.name + ": " + err.Error()) // a test holds that none is broken
		}
		all[i] = Preset{p.name, p.description, d.Rules}
	}
	return all
}

var presets = []struct {
	name, description string
	rules             func() []Rule
}{
	{"package-registries", "Install from npm, PyPI, Go, crates.io, RubyGems, Maven, Gradle, NuGet, Packagist, Conda, Debian, Ubuntu and Alpine. Publishing is not in it.", registryRules},
	{"git-hosting", "Clone and fetch any repository of GitHub, GitLab, Bitbucket and Codeberg, and download archives and releases. Pushing is not in it.", hostingRules},
	{"ai-apis", "Ask models of OpenAI, Anthropic, Google, Mistral, Cohere, Groq, DeepSeek, xAI, Together and OpenRouter, with granted keys only. Files and other storage are not in it.", modelRules},
}

func presetNames() (names []string) {
	for _, p := range presets {
		names = append(names, p.name)
	}
	return names
}

// presets appends the rules of each preset that the document names.
func (r *reader) presets(d *Document, n *node) {
	seen := map[int]bool{}
	for i, v := range r.list(n, "presets", len(presets)) {
		path, before := at("presets", i), len(r.errs)
		which := r.choice(v, path, presetNames())
		switch {
		case len(r.errs) > before:
		case seen[which]:
			r.errs.add(path, "", "%q comes twice", v.text)
		default:
			seen[which] = true
			r.add(d, path, presets[which].rules()...)
		}
	}
}

// opened is an allow rule for the inside of https, as all rules of presets are.
func opened(id string, hosts, methods, paths []string) Rule {
	block := ForeignBlock
	return Rule{ID: id, Action: Allow, Hosts: hosts, Protocols: HTTPS, TLS: Inspect, Methods: methods, Paths: paths, ForeignCredentials: &block}
}

// signed is opened where downloads are sent to addresses that the upstream itself has signed. What is signed looks like a credential, and the
// address is worth nothing without. Only reading is allowed, from places where nobody but the upstream's owner keeps things.
func signed(id string, hosts, paths []string) Rule {
	allow := ForeignAllow
	r := opened(id, hosts, reads, paths)
	r.ForeignCredentials = &allow
	return r
}

func words(s string) []string { return strings.Fields(s) }

var reads = []string{"GET", "HEAD"}

// registryRules let package managers install. What they leave out is what publishes:
//
//   - npm publish, unpublish, owner and login send PUT, DELETE or POST elsewhere than to the two audit addresses;
//   - twine and poetry upload to upload.pypi.org, which isn't named, and POST to pypi.org isn't either;
//   - cargo publish, yank and owner send PUT and DELETE to crates.io/api/v1/crates;
//   - gem push POSTs to rubygems.org/api/v1/gems; gradle publishPlugins POSTs to plugins.gradle.org; nuget push PUTs to www.nuget.org;
//   - Maven's central takes uploads at other hosts.
//
// proxy.golang.org sends some downloads on to one folder of storage.googleapis.com; no other folder of it is opened. Gradle's
// wrapper is sent on to its releases at GitHub.
// apt and apk speak clear HTTP by default and check signatures by themselves, so both protocols are allowed there.
func registryRules() []Rule {
	const p = "package-registries."
	clear := func(r Rule) Rule { r.Protocols |= HTTP; return r }
	return []Rule{
		opened(p+"npm", words("registry.npmjs.org registry.yarnpkg.com"), reads, nil),
		opened(p+"npm-audit", words("registry.npmjs.org registry.yarnpkg.com"), words("POST"), words("/-/npm/v1/security/advisories/bulk /-/npm/v1/security/audits/quick /-/npm/v1/security/audits")),
		opened(p+"node", words("nodejs.org"), reads, words("/dist/** /download/**")),
		opened(p+"pypi", words("pypi.org files.pythonhosted.org"), reads, nil),
		opened(p+"go", words("proxy.golang.org sum.golang.org"), reads, nil),
		signed(p+"go-storage", words("storage.googleapis.com"), words("/proxy-golang-org-prod/**")),
		opened(p+"crates", words("index.crates.io static.crates.io"), reads, nil),
		opened(p+"crates-api", words("crates.io"), reads, words("/api/v1/crates/**")),
		opened(p+"rubygems", words("rubygems.org index.rubygems.org"), reads, nil),
		opened(p+"maven", words("repo.maven.apache.org repo1.maven.org"), reads, nil),
		opened(p+"gradle", words("plugins.gradle.org plugins-artifacts.gradle.org services.gradle.org downloads.gradle.org"), reads, nil),
		opened(p+"gradle-wrapper", words("github.com"), reads, words("/gradle/gradle-distributions/releases/download/**")),
		signed(p+"gradle-assets", words("release-assets.githubusercontent.com objects.githubusercontent.com"), words("/github-production-release-asset/** /github-production-release-asset-2e65be/**")),
		opened(p+"nuget", words("api.nuget.org"), reads, nil),
		opened(p+"packagist", words("repo.packagist.org"), reads, nil),
		opened(p+"conda", words("conda.anaconda.org repo.anaconda.com"), reads, nil),
		clear(opened(p+"debian", words("deb.debian.org security.debian.org"), reads, nil)),
		clear(opened(p+"ubuntu", words("archive.ubuntu.com security.ubuntu.com ports.ubuntu.com"), reads, nil)),
		clear(opened(p+"alpine", words("dl-cdn.alpinelinux.org"), reads, nil)),
	}
}

// hostingRules let git read every repository of the big hosts: the list of its branches (info/refs) and its objects
// (git-upload-pack). git-receive-pack, by which a push sends, is not among the paths, and neither are the hosts' APIs, gists,
// issues and LFS. A push ends with the reason no_rule at POST …/git-receive-pack at the latest: the query of info/refs, which
// already names it, isn't looked at. A single owner's repositories to push to are opened by a rule of their own:
// git: github.com/owner/*, access: write.
//
// Repositories of GitLab may lie up to three groups deep. Archives and releases are read from the hosts' download names.
func hostingRules() []Rule {
	const p = "git-hosting."
	hosts := words("github.com gitlab.com bitbucket.org codeberg.org")
	depths := func(suffix string) []string {
		return []string{"/*/*" + suffix, "/*/*/*" + suffix, "/*/*/*/*" + suffix}
	}
	return []Rule{
		opened(p+"refs", hosts, words("GET"), depths("/info/refs")),
		opened(p+"fetch", hosts, words("POST"), depths("/git-upload-pack")),
		opened(p+"archives", hosts, reads, append(words("/*/*/archive/** /*/*/releases/download/** /*/*/releases/latest/download/** /*/*/raw/** /*/*/get/*"), depths("/-/archive/**")...)),
		opened(p+"downloads", words("codeload.github.com raw.githubusercontent.com"), reads, nil),
		signed(p+"releases", words("release-assets.githubusercontent.com objects.githubusercontent.com"), words("/github-production-release-asset/** /github-production-release-asset-2e65be/**")),
	}
}

// modelRules let models be asked, and nothing be kept: only the paths of inference are opened. Uploads (files, batches, caches, fine
// tuning, assistants' stores) stay closed, as whoever holds a key of his own could carry data out through them.
// For the same reason foreign_credentials is block: the key is the org's, by a grant, or there is none.
//
// A model may reach out by itself, if the request asks the provider's tools to (web search, connectors, pictures by URL). That
// stands in the body, which no rule looks at: it is switched off in the settings of the account that the key belongs to.
func modelRules() []Rule {
	const p = "ai-apis."
	post, get := words("POST"), words("GET")
	return slices.Concat(
		models(p+"openai", "api.openai.com", post, "/v1/chat/completions /v1/responses /v1/completions /v1/embeddings /v1/moderations", get, "/v1/models/**"),
		models(p+"anthropic", "api.anthropic.com", post, "/v1/messages /v1/messages/count_tokens /v1/complete", get, "/v1/models/**"),
		models(p+"google", "generativelanguage.googleapis.com", post, "/v1/models/* /v1beta/models/* /v1beta/openai/chat/completions /v1beta/openai/embeddings", get, "/v1/models/** /v1beta/models/** /v1beta/openai/models/**"),
		models(p+"mistral", "api.mistral.ai", post, "/v1/chat/completions /v1/fim/completions /v1/embeddings", get, "/v1/models/**"),
		models(p+"cohere", "api.cohere.com", post, "/v1/chat /v2/chat /v1/embed /v2/embed /v1/rerank /v2/rerank /v1/tokenize", get, "/v1/models/**"),
		models(p+"groq", "api.groq.com", post, "/openai/v1/chat/completions /openai/v1/responses /openai/v1/embeddings", get, "/openai/v1/models/**"),
		models(p+"deepseek", "api.deepseek.com", post, "/chat/completions /v1/chat/completions /beta/completions /anthropic/v1/messages", get, "/models /v1/models"),
		models(p+"xai", "api.x.ai", post, "/v1/chat/completions /v1/responses /v1/messages", get, "/v1/models/** /v1/language-models/**"),
		models(p+"together", "api.together.xyz", post, "/v1/chat/completions /v1/completions /v1/embeddings /v1/rerank", get, "/v1/models"),
		models(p+"openrouter", "openrouter.ai", post, "/api/v1/chat/completions /api/v1/completions", get, "/api/v1/models/**"),
	)
}

// models is two rules for one host: asking, and listing what can be asked.
func models(id, host string, ask []string, askPaths string, list []string, listPaths string) []Rule {
	return []Rule{
		opened(id, []string{host}, ask, words(askPaths)),
		opened(id+"-models", []string{host}, list, words(listPaths)),
	}
}
