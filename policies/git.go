package policies

import (
	"slices"
	"strings"

	"portreeve.dev/policies/hostname"
	"portreeve.dev/policies/pathmatch"
)

// A rule may name repositories instead of hosts:
//
//   - id: app
//     action: allow
//     git: github.com/acme/*        # or github.com/acme/app
//     access: read                  # or write, read-lfs, write-lfs
//
// Reading it writes out plain rules, with the id before a dot:
//
//   - app.refs: GET …/info/refs, the first request of both fetch and push. Which of the two follows stands in the query, which no
//     rule looks at; the answer is a list of branches, which whoever may read may see.
//   - app.fetch: POST …/git-upload-pack, by which clone, fetch and pull get objects.
//   - app.push: POST …/git-receive-pack, by which objects are sent; only for access: write. Without it a push ends there at the
//     latest with the reason no_rule, and may be asked for as any other access.
//   - app.lfs: POST …/info/lfs/objects/batch, and app.lfs-fetch: GET of objects kept on the same host; only for read-lfs and
//     write-lfs. The batch's body says whether files go up or down, and no rule looks at a body: for read-lfs it is the upload
//     itself (PUT) that is refused. Hosts that keep LFS elsewhere need a rule for that place.
//   - app.lfs-push: PUT of objects, and app.lfs-locks: their verification and locks; only for write-lfs.
//
// Both spellings of a repository are meant, with and without ".git". Letters are compared as they are. What has more levels
// (GitLab's subgroups) is named in full: gitlab.com/group/subgroup/*. Only "smart" HTTP is meant, as all big hosts speak it.
// Everything is opened, and of credentials none but a granted one passes, unless foreign_credentials says otherwise.
var gitKeys = []string{"id", "action", "git", "access", "ports", "foreign_credentials", "dns", "log", "expires_at", "enabled"}

var gitAccess = []string{"read", "write", "read-lfs", "write-lfs"}

// maxGitID leaves room for the longest suffix.
const maxGitID = 64 - len(".lfs-locks")

// git reads the sugar and returns the rules that it stands for.
func (r *reader) git(n *node, path string) []Rule {
	// The fields that no sugar is needed for are read as those of any rule.
	rest := &node{kind: kindObject}
	fields := r.object(n, path, gitKeys)
	for i, key := range n.keys {
		if fields[key] != nil && key != "git" && key != "access" {
			rest.keys, rest.values = append(rest.keys, key), append(rest.values, n.values[i])
		}
	}
	before := len(r.errs)
	base := r.rule(rest, path)
	access := 0
	if fields["access"] == nil {
		r.errs.add(join(path, "access"), "use one of "+strings.Join(gitAccess, ", "), "is missing")
	} else {
		access = r.choice(fields["access"], join(path, "access"), gitAccess)
	}
	host, repos := r.repository(fields["git"], join(path, "git"))
	if base.Action == Deny && fields["action"] != nil {
		r.errs.add(join(path, "action"), "what no rule allows is denied; to forbid it for good write a deny rule with paths", "a git rule only allows")
	}
	if len(base.ID) > maxGitID {
		r.errs.add(join(path, "id"), "", "%q is longer than %d, and the rules' own endings follow", base.ID, maxGitID)
	}
	if len(r.errs) > before {
		return nil
	}
	return gitRules(base, host, repos, access)
}

// repository splits host/owner/repo, and returns the paths of the repository in both spellings.
func (r *reader) repository(n *node, path string) (host string, repos []string) {
	const hint = "write host/owner/*, or host/owner/repository"
	text := r.string(n, path)
	if n.kind != kindString {
		return "", nil
	}
	name, rest, _ := strings.Cut(text, "/")
	host, err := hostname.Normalize(name)
	if err != nil {
		r.errs.add(path, hint, "%v", err)
		return "", nil
	}
	segments := strings.Split(rest, "/")
	last := len(segments) - 1
	for i, s := range segments {
		if s == "*" && i == last && last > 0 {
			continue
		}
		if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "*%?#") {
			r.errs.add(path, hint+"; a star stands only for the last part", "%q is not a repository", text)
			return "", nil
		}
	}
	base := "/" + rest
	canonical, err := pathmatch.Canonical(base)
	if err != nil {
		r.errs.add(path, hint, "%v", err)
		return "", nil
	}
	if segments[last] == "*" {
		return host, []string{canonical} // the star is both spellings
	}
	canonical = strings.TrimSuffix(canonical, ".git")
	if strings.HasSuffix(canonical, "/") {
		r.errs.add(path, hint, "%q is not a repository", text)
		return "", nil
	}
	return host, []string{canonical, canonical + ".git"}
}

func gitRules(base Rule, host string, repos []string, access int) []Rule {
	write, lfs := access&1 != 0, access&2 != 0
	if base.ForeignCredentials == nil {
		block := ForeignBlock
		base.ForeignCredentials = &block
	}
	under := func(suffixes ...string) (paths []string) {
		for _, repo := range repos {
			for _, s := range suffixes {
				paths = append(paths, repo+s)
			}
		}
		return paths
	}
	rule := func(suffix string, methods []string, paths []string) Rule {
		r := base
		r.ID, r.Hosts, r.TLS, r.Methods, r.Paths, r.Ports = base.ID+suffix, []string{host}, Inspect, methods, paths, slices.Clone(base.Ports)
		return r
	}
	rules := []Rule{
		rule(".refs", []string{"GET"}, under("/info/refs")),
		rule(".fetch", []string{"POST"}, under("/git-upload-pack")),
	}
	if write {
		rules = append(rules, rule(".push", []string{"POST"}, under("/git-receive-pack")))
	}
	if lfs {
		rules = append(rules,
			rule(".lfs", []string{"POST"}, under("/info/lfs/objects/batch")),
			rule(".lfs-fetch", []string{"GET"}, under("/info/lfs/objects/*", "/gitlab-lfs/objects/*")))
	}
	if lfs && write {
		rules = append(rules,
			rule(".lfs-push", []string{"PUT"}, under("/info/lfs/objects/**", "/gitlab-lfs/objects/**")),
			rule(".lfs-locks", []string{"GET", "POST"}, under("/info/lfs/locks/**", "/info/lfs/verify", "/info/lfs/objects/verify", "/info/lfs/objects/*/verify")))
	}
	return rules
}
