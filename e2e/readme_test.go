package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"portreeve.dev/lab"
)

var (
	shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	decisionID = regexp.MustCompile(`dec_[0-9a-f-]{36}`)
	sandboxID  = regexp.MustCompile(`sbx_[0-9a-f-]{36}`)
	tunnelCall = regexp.MustCompile(`X-Portreeve-Token: \S+' http://[a-z0-9-]+\.tunnel\.localhost:8443`)
)

// A reader follows the README: what it leaves out with an ellipsis is what an earlier command printed.
type reader struct {
	t    *testing.T
	l    *lab.Lab
	p    *lab.Product
	home string // looks like the repository as far as the commands use it

	decision, sandbox, call string
}

func newReader(t *testing.T, l *lab.Lab, p *lab.Product, root string) *reader {
	r := &reader{t: t, l: l, p: p, home: t.TempDir()}
	for name, to := range map[string]string{"bin": p.Bin, "docs": filepath.Join(root, "docs")} {
		if err := os.Symlink(to, filepath.Join(r.home, name)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// follow runs one line as a shell would, where the product runs.
func (r *reader) follow(line string) (string, int) {
	for mark, is := range map[string]string{"dec_…": r.decision, "sbx_…": r.sandbox, "X-Portreeve-Token: …' http://….tunnel.localhost:8443": r.call} {
		line = strings.ReplaceAll(line, mark, is)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lab.CommandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", r.l.Gateway.Name, "bash", "-c", line)
	cmd.Dir = r.home
	cmd.Env = append(os.Environ(), "PORTREEVE_URL="+r.p.Info.APIURL, "PORTREEVE_KEY="+r.p.Info.APIKey)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		r.t.Fatalf("%s: %v", line, err)
	}
	said := string(out)
	for is, pattern := range map[*string]*regexp.Regexp{&r.decision: decisionID, &r.sandbox: sandboxID, &r.call: tunnelCall} {
		if found := pattern.FindString(said); found != "" {
			*is = found
		}
	}
	r.t.Logf("$ %s\n%s(%d)", line, said, cmd.ProcessState.ExitCode())
	return said, cmd.ProcessState.ExitCode()
}

// TestReadme runs the README's commands as they stand there, in their order, and looks whether they show what it says.
func TestReadme(t *testing.T) {
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	first, rest, ok := strings.Cut(string(readme), "\n### A key that is never inside\n")
	if !ok {
		t.Fatal("the README has no part about keys")
	}
	// The first part speaks of a fresh machine, where base is being built; the second of one where it is there.
	l, p := own(t)
	newReader(t, l, p, root).read(first)
	if got := len(l.Web.Requests("example.com")); got != 1 {
		t.Errorf("example.com was fetched %d times", got)
	}
	l, p = withBase(t)
	newReader(t, l, p, root).read(rest)
	for _, got := range l.Web.Requests("postman-echo.com") {
		if strings.Join(got.Header["Authorization"], ",") != "Bearer not-a-real-key" {
			t.Errorf("postman-echo.com received %+v", got)
		}
	}
	if len(l.Web.Requests("postman-echo.com")) != 1 {
		t.Error("postman-echo.com received no request, or more than one")
	}
}

// read follows the shell blocks of a part of the page. Commands of make have tests of their own.
func (r *reader) read(part string) {
	allowed, called := false, 0
	for _, block := range shellBlock.FindAllStringSubmatch(part, -1) {
		for _, line := range strings.Split(strings.TrimSpace(block[1]), "\n") {
			if strings.HasPrefix(line, "make ") {
				continue
			}
			said, code := r.follow(line)
			denied := false
			want := ""
			switch {
			case strings.Contains(line, " run -- wget ") && !allowed:
				denied, want = true, "no_rule"
			case strings.Contains(line, " run -- wget "):
				want = `"sni":"example.com"`
			case strings.Contains(line, " allow "):
				allowed, want = true, "example.com"
			case strings.Contains(line, " explain "):
				want = "no_rule"
			case strings.Contains(line, " decisions"):
				want = "example.com"
			case strings.Contains(line, " probe"):
				want = " 0 got out"
			case strings.Contains(line, " attach -- curl "):
				denied, want = true, "denied example.org"
			case strings.Contains(line, " -- curl "):
				want = "Bearer not-a-real-key"
			case strings.Contains(line, " -- env"):
				if strings.Contains(said, "not-a-real-key") {
					r.t.Error("the key is in the sandbox's environment")
				}
			case strings.HasPrefix(line, "curl "):
				called++
				want = "hello"
			case strings.Contains(line, " sandbox list"):
				want = "running"
			}
			if (code != 0) != denied || !strings.Contains(said, want) {
				r.t.Errorf("%s: status %d, and it said %q, where %q is wanted", line, code, said, want)
			}
		}
	}
	if r.call != "" && called != 2 {
		r.t.Errorf("the URL was called %d times", called)
	}
}
