package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What Resolve may say about a name.
var (
	ErrUnknown  = errors.New("no such image")
	ErrBuilding = errors.New("image is being built")
	ErrFailed   = errors.New("building the image failed")
)

var errCutOff = errors.New("the build was cut off")

// An Image is an unpacked root filesystem.
type Image struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // sha256:<hex> of the tar stream it came from
	Rootfs string `json:"-"`      // absolute
}

// A Status tells how a name stands.
type Status struct {
	Image
	State    string    `json:"state"` // ready, building, failed
	Progress string    `json:"progress,omitempty"`
	Error    string    `json:"error,omitempty"`
	Since    time.Time `json:"since"`
}

// Config of a store.
type Config struct {
	Dir        string           // absolute, on a file system that allows programs
	MaxBytes   int64            // of file contents in one image; default 16 GiB
	MaxEntries int              // default 1,000,000
	Now        func() time.Time // default time.Now
	Log        *slog.Logger     // default none

	BasePackages []string // Debian's packages that base gets beside its own; default none
}

// A Store is safe for concurrent use within one process.
type Store struct {
	c    Config
	lock *os.File   // held as long as the store is open
	mu   sync.Mutex // names/*.json
	base sync.Mutex // held while "base" is being built
	wg   sync.WaitGroup
}

// Open opens a store and makes its directories. One process at a time has it open, until Close or its end: what it finds of
// unfinished builds is removed, and they count as failed. Images of an earlier version get what this one mounts over.
func Open(c Config) (*Store, error) {
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("image store: %q is not absolute", c.Dir)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 16 << 30
	}
	if c.MaxEntries == 0 {
		c.MaxEntries = 1_000_000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{c: c}
	if err := os.MkdirAll(s.names(), 0o755); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	if err := s.take(); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	if err := s.tidy(); err != nil {
		s.Close()
		return nil, fmt.Errorf("image store: %w", err)
	}
	return s, nil
}

// Close lets another process open the store. Builds have to have ended.
func (s *Store) Close() error { return s.lock.Close() }

// take makes sure that nobody else's builds are tidied away.
func (s *Store) take() error {
	f, err := os.Open(s.c.Dir)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if err == unix.EWOULDBLOCK {
			return fmt.Errorf("%s is in use by another process", s.c.Dir)
		}
		return err
	}
	s.lock = f
	return nil
}

// tidy brings in order what an earlier process, or an earlier version, left.
func (s *Store) tidy() error {
	// An image has directories of its own users and some that are everybody's. To those, the machine's users must have no way.
	if err := os.Chmod(s.c.Dir, 0o700); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(s.c.Dir, partial+"*"))
	if err != nil {
		return err
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	all, err := s.List()
	if err != nil {
		return err
	}
	for _, st := range all {
		if st.State == "building" {
			st.State, st.Error, st.Since = "failed", errCutOff.Error(), s.c.Now().UTC()
			if err := s.save(st); err != nil {
				return err
			}
		}
		if err := s.renew(st); err != nil {
			return fmt.Errorf("image %q: %w", st.Name, err)
		}
	}
	return nil
}

// renew makes what this version mounts over in an image that an older one unpacked.
func (s *Store) renew(st Status) error {
	if st.Digest == "" {
		return nil
	}
	root, err := os.OpenRoot(s.rootfs(st.Digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Resolve says so
	} else if err != nil {
		return err
	}
	defer root.Close()
	return prepare(root)
}

// Wait returns when no build runs any more.
func (s *Store) Wait() { s.wg.Wait() }

// Resolve returns the image that a name stands for, or an error that is ErrUnknown, ErrBuilding or ErrFailed.
func (s *Store) Resolve(name string) (Image, error) {
	st, err := s.load(name)
	if err != nil {
		return Image{}, err
	}
	if st.Digest != "" {
		img := st.Image
		img.Rootfs = s.rootfs(img.Digest)
		if _, err := os.Stat(img.Rootfs); err == nil {
			return img, nil
		}
		return Image{}, fmt.Errorf("image %q: its directory is gone: %w", name, ErrFailed)
	}
	if st.State == "building" {
		return Image{}, fmt.Errorf("image %q: %w (%s)", name, ErrBuilding, st.Progress)
	}
	return Image{}, fmt.Errorf("image %q: %w: %s", name, ErrFailed, st.Error)
}

// List returns how all names stand.
func (s *Store) List() ([]Status, error) {
	entries, err := os.ReadDir(s.names())
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	var all []Status
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		st, err := s.load(name)
		if err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Look returns how a name stands in the store at dir, which another process may have open.
func Look(dir, name string) (Status, error) {
	s := &Store{c: Config{Dir: dir}}
	return s.load(name)
}

// Import unpacks a tar stream and gives it a name. The name changes only when all is in place.
func (s *Store) Import(ctx context.Context, name string, r io.Reader) (Image, error) {
	if !validName.MatchString(name) {
		return Image{}, fmt.Errorf("image %q: not a name", name)
	}
	digest, err := s.unpack(ctx, r, nil)
	if err != nil {
		return Image{}, fmt.Errorf("importing image %q: %w", name, err)
	}
	img := Image{Name: name, Digest: digest, Rootfs: s.rootfs(digest)}
	if err := s.save(Status{Image: img, State: "ready", Since: s.c.Now().UTC()}); err != nil {
		return Image{}, err
	}
	return img, nil
}

const partial = ".partial-"

var (
	validName   = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	validDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

func (s *Store) names() string { return filepath.Join(s.c.Dir, "names") }

func (s *Store) rootfs(digest string) string {
	return filepath.Join(s.c.Dir, strings.Replace(digest, ":", "-", 1), "rootfs")
}

func (s *Store) load(name string) (Status, error) {
	var st Status
	if !validName.MatchString(name) {
		return st, fmt.Errorf("image %q: %w", name, ErrUnknown)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := os.ReadFile(filepath.Join(s.names(), name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return st, fmt.Errorf("image %q: %w", name, ErrUnknown)
	} else if err != nil {
		return st, fmt.Errorf("image %q: %w", name, err)
	}
	if err := json.Unmarshal(b, &st); err != nil {
		return st, fmt.Errorf("image %q: %w", name, err)
	}
	if st.Name != name || st.Digest != "" && !validDigest.MatchString(st.Digest) {
		return Status{}, fmt.Errorf("image %q: its record names %q, %q", name, st.Name, st.Digest)
	}
	return st, nil
}

// save replaces the record of a name; it is durable when save returns.
func (s *Store) save(st Status) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("image %q: %w", st.Name, err)
	}
	path := filepath.Join(s.names(), st.Name+".json")
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("image %q: %w", st.Name, err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("image %q: %w", st.Name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("image %q: %w", st.Name, err)
	}
	return syncDir(s.names())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncAll makes everything on the file system of dir durable: cheaper than a sync for each of ten thousand files.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
