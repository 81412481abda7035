package lab

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// gitBackend is what serves repositories over HTTP, of git itself.
const gitBackend = "/usr/lib/git-core/git-http-backend"

// Git is a host of repositories at tcp.test's address: git's own server over HTTPS, which takes pushes from anybody.
type Git struct {
	Dir string

	mu   sync.Mutex
	seen []string
}

// StartGit starts one under a name, with empty repositories like owner/name, each with one commit, until the test ends.
func (l *Lab) StartGit(t TB, host string, repositories ...string) *Git {
	t.Helper()
	g := &Git{}
	var err error
	if g.Dir, err = os.MkdirTemp(l.Dir, "git"); err != nil {
		t.Fatalf("starting git: %v", err)
	}
	for _, name := range repositories {
		if err := g.create(name); err != nil {
			t.Fatalf("making repository %s: %v", name, err)
		}
	}
	config, err := l.CA.server(host)
	if err != nil {
		t.Fatalf("starting git: %v", err)
	}
	listener, err := l.Net.Listen("tcp", tcpAddr.String()+":443")
	if err != nil {
		t.Fatalf("starting git: %v", err)
	}
	s := &http.Server{Handler: g, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	var done sync.WaitGroup
	done.Go(func() { s.Serve(tls.NewListener(listener, s.TLSConfig)) })
	t.Cleanup(func() {
		s.Close()
		done.Wait()
	})
	l.DNS.Set(host, At(tcpAddr))
	return g
}

func (g *Git) create(name string) error {
	bare, work := filepath.Join(g.Dir, name+".git"), filepath.Join(g.Dir, "work")
	defer os.RemoveAll(work)
	for _, args := range [][]string{
		{"init", "-q", "--bare", "-b", "main", bare},
		{"-C", bare, "config", "http.receivepack", "true"},
		{"init", "-q", "-b", "main", work},
		{"-C", work, "-c", "user.name=lab", "-c", "user.email=lab@lab.test", "commit", "-q", "--allow-empty", "-m", "the first"},
		{"-C", work, "push", "-q", bare, "main"},
	} {
		if r := g.git(args...); r.Code != 0 {
			return fmt.Errorf("git %s: %v", strings.Join(args, " "), r)
		}
	}
	return nil
}

func (g *Git) git(args ...string) Run {
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+g.Dir, "GIT_CONFIG_NOSYSTEM=1")
	return run(cmd)
}

// Subjects are the first lines of the commits of a repository, the newest first.
func (g *Git) Subjects(name string) []string {
	r := g.git("-C", filepath.Join(g.Dir, name+".git"), "log", "--format=%s", "main")
	return strings.Split(strings.TrimSpace(r.Stdout), "\n")
}

// Requests are the methods and paths that arrived so far.
func (g *Git) Requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.seen...)
}

// ServeHTTP hands a request to git's own program.
func (g *Git) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.seen = append(g.seen, r.Method+" "+r.URL.Path)
	g.mu.Unlock()
	r.Body = http.MaxBytesReader(w, r.Body, 16<<20)
	(&cgi.Handler{Path: gitBackend, Dir: g.Dir, Logger: log.New(io.Discard, "", 0),
		Env: []string{"GIT_PROJECT_ROOT=" + g.Dir, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + g.Dir, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}).ServeHTTP(w, r)
}
