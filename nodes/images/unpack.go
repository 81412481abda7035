package images

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// unpack unpacks a tar stream into place and returns its digest. Before it gives what it unpacked its place it asks ended,
// unless that is nil, whether all of the stream was meant to be there.
func (s *Store) unpack(ctx context.Context, r io.Reader, ended func() error) (digest string, err error) {
	tmp, err := os.MkdirTemp(s.c.Dir, partial)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp) // gone by rename when all went well
	if err := os.Mkdir(filepath.Join(tmp, "rootfs"), 0o755); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(filepath.Join(tmp, "rootfs"))
	if err != nil {
		return "", err
	}
	defer root.Close()

	sum := sha256.New()
	in := io.TeeReader(&reader{ctx, r}, sum)
	u := unpacker{root: root, bytes: s.c.MaxBytes, entries: s.c.MaxEntries}
	if err := u.all(tar.NewReader(in)); err != nil {
		return "", err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // padding behind the end counts for the digest
		return "", err
	}
	if ended != nil {
		if err := ended(); err != nil {
			return "", err
		}
	}
	if err := prepare(root); err != nil {
		return "", err
	}
	digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	final := filepath.Dir(s.rootfs(digest))
	if _, err := os.Stat(final); err == nil {
		return digest, nil // the same bytes are there already
	}
	// MkdirTemp made it for us alone; an image holds no secrets, and gofers are not root everywhere.
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := syncAll(tmp); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, final); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return digest, syncDir(s.c.Dir)
}

type unpacker struct {
	root    *os.Root
	bytes   int64
	entries int
}

func (u *unpacker) all(tr *tar.Reader) error {
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading tar: %w", err)
		}
		if u.entries--; u.entries < 0 {
			return errors.New("too many entries")
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" {
			continue
		}
		if err := u.entry(name, h, tr); err != nil {
			return fmt.Errorf("unpacking %q: %w", h.Name, err)
		}
	}
}

// entry makes one entry. Every path goes through os.Root, which refuses to follow a link out of the directory; the text
// of a symbolic link is kept as it is, as only the sandbox will read it.
func (u *unpacker) entry(name string, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
	default:
		return nil // devices, pipes: the sandbox has its own /dev
	}
	if h.Uid < 0 || h.Gid < 0 {
		return fmt.Errorf("owner %d:%d", h.Uid, h.Gid)
	}
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	old, err := u.root.Lstat(name)
	switch {
	case err == nil && h.Typeflag == tar.TypeDir && old.IsDir():
	case err == nil && old.IsDir():
		return errors.New("replaces a directory")
	case err == nil:
		if err := u.root.Remove(name); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeReg:
		if err := u.file(name, content); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := u.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return u.root.Lchown(name, h.Uid, h.Gid)
	case tar.TypeLink:
		return u.root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	}
	if err := u.root.Lchown(name, h.Uid, h.Gid); err != nil {
		return err
	}
	// After the owner, which would clear bits. A set-id bit on a file would only wait for somebody to honour it.
	mode := h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSticky)
	if err := u.root.Chmod(name, mode); err != nil {
		return err
	}
	if h.ModTime.IsZero() || h.Typeflag == tar.TypeDir {
		return nil
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

func (u *unpacker) file(name string, content io.Reader) error {
	f, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(content, u.bytes+1))
	if u.bytes -= n; err == nil && u.bytes < 0 {
		err = errors.New("the image is too large")
	}
	return errors.Join(err, f.Close())
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
