package images

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What the image "base" has beside Debian's minimum.
var basePackages = []string{"bash", "ca-certificates", "coreutils", "curl", "git", "nodejs", "python3", "wget"}

// Left out of every package: nobody reads it in a sandbox.
var baseExcludes = []string{"/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/lintian/*"}

// StartBase builds the image "base" with mmdebstrap, in the background, unless it is there or being built. Its state is
// in the store; Wait waits for it; ctx ends it.
func (s *Store) StartBase(ctx context.Context) error {
	const name = "base"
	if !s.base.TryLock() {
		return nil
	}
	started := false
	defer func() {
		if !started {
			s.base.Unlock()
		}
	}()
	if st, err := s.load(name); err == nil && st.State == "ready" {
		return nil
	} else if err != nil && !errors.Is(err, ErrUnknown) {
		return err
	}
	program, err := exec.LookPath("mmdebstrap")
	if err != nil {
		err = errors.New("mmdebstrap is not installed; Debian has it in the package mmdebstrap")
		return errors.Join(err, s.failed(name, err))
	}
	if err := s.building(name, "starting"); err != nil {
		return err
	}
	started = true
	s.wg.Go(func() {
		defer s.base.Unlock()
		s.buildBase(ctx, name, program)
	})
	return nil
}

func (s *Store) buildBase(ctx context.Context, name, program string) {
	img, err := s.debootstrap(ctx, name, program)
	if err == nil {
		s.c.Log.Info("image built", "image", name, "digest", img.Digest)
		return
	}
	if ctx.Err() != nil {
		err = errCutOff
	}
	s.c.Log.Warn("image not built", "image", name, "err", err)
	if err := s.failed(name, err); err != nil {
		s.c.Log.Warn("recording failed image", "image", name, "err", err)
	}
}

func (s *Store) debootstrap(ctx context.Context, name, program string) (Image, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	tmp, err := os.MkdirTemp(s.c.Dir, partial)
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(tmp)
	suite, sources := debian("/")
	cmd := exec.CommandContext(ctx, program, baseArgs(suite, sources, s.c.BasePackages)...)
	alone(cmd)
	cmd.Dir = "/"
	cmd.Env = append(proxies(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR="+tmp, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Image{}, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return Image{}, err
	}
	// The kernel ends the program when this thread ends, so the thread is kept until the program has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return Image{}, err
	}
	said := make(chan string, 1)
	go func() { said <- s.follow(name, stderr) }()

	// The tar is unpacked while it comes, and kept only when the program has ended well.
	ended := sync.OnceValue(func() error {
		_, _ = io.Copy(io.Discard, stdout)
		why := <-said
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("mmdebstrap: %w: %s", err, why)
		}
		return nil
	})
	digest, err := s.unpack(ctx, stdout, ended)
	if why := ended(); why != nil {
		err = why // the cause, where both failed
	}
	if err != nil {
		return Image{}, err
	}
	img := Image{Name: name, Digest: digest, Rootfs: s.rootfs(digest)}
	return img, s.save(Status{Image: img, State: "ready", Since: s.c.Now().UTC()})
}

// alone gives the program process numbers and mounts of its own: when it ends, by itself or killed, or when we do, the
// kernel ends all that it started and takes its mounts away, so that nothing of it is left whose removal could go wrong.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID,
		Unshareflags: unix.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
}

// follow records each line of progress, at most one in two seconds, and returns the first error line, the cause of those
// that follow it; without one, the last line.
func (s *Store) follow(name string, r io.Reader) string {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 4096), 1<<20)
	why, saved := "", time.Time{}
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || len(line) > 300 {
			continue
		}
		if !strings.HasPrefix(why, "E:") {
			why = line
		}
		progress, ok := strings.CutPrefix(line, "I: ")
		if now := s.c.Now(); ok && now.Sub(saved) > 2*time.Second {
			saved = now
			if err := s.building(name, progress); err != nil {
				s.c.Log.Warn("recording progress", "image", name, "err", err)
			}
		}
	}
	_, _ = io.Copy(io.Discard, r)
	return why
}

func baseArgs(suite string, sources, more []string) []string {
	packages := slices.Concat(basePackages, more)
	args := []string{"--mode=root", "--variant=minbase", "--format=tar", "--include=" + strings.Join(packages, ",")}
	for _, e := range baseExcludes {
		args = append(args, "--dpkgopt=path-exclude="+e)
	}
	// What is unpacked here is read once, into a tar: nothing of it need be on the disk before.
	args = append(args, "--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=force-unsafe-io", suite, "-")
	return append(args, sources...)
}

// debian returns the suite to build, and the host's own package sources where it is a Debian of that suite, so that its
// mirror is used. Elsewhere mmdebstrap knows one.
func debian(root string) (suite string, sources []string) {
	release := make(map[string]string)
	b, _ := os.ReadFile(filepath.Join(root, "etc/os-release"))
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		release[key] = strings.Trim(value, `"`)
	}
	if release["ID"] != "debian" || release["VERSION_CODENAME"] == "" {
		return "bookworm", nil
	}
	for _, pattern := range []string{"etc/apt/sources.list", "etc/apt/sources.list.d/*debian.sources"} {
		files, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, f := range files {
			if st, err := os.Stat(f); err == nil && st.Size() > 0 {
				sources = append(sources, f)
			}
		}
	}
	return release["VERSION_CODENAME"], sources
}

// proxies are the only variables of ours that a build gets.
func proxies() []string {
	var env []string
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func (s *Store) building(name, progress string) error {
	return s.save(Status{Image: Image{Name: name}, State: "building", Progress: progress, Since: s.c.Now().UTC()})
}

func (s *Store) failed(name string, err error) error {
	return s.save(Status{Image: Image{Name: name}, State: "failed", Error: err.Error(), Since: s.c.Now().UTC()})
}
