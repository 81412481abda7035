package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"portreeve.dev/nodes/guest/frame"
)

// roots are the only folders in which files are touched. User processes can't replace them, as / is not theirs.
var roots = []string{workspace, "/tmp"}

// files runs one file operation as the user.
func (st *stream) files(op frame.Operation) {
	err := asUser(func() error {
		switch m := op.Message.(type) {
		case frame.ReadMessage:
			return inside(m.Path, func(p place) error { return st.read(p, m) })
		case frame.WriteMessage:
			return inside(m.Path, func(p place) error { return st.write(p, m) })
		case frame.DeleteMessage:
			return inside(m.Path, func(p place) error { return st.delete(p, m) })
		case frame.PathMessage:
			if op.Type == frame.OpList {
				return inside(m.Path, st.list)
			}
			return inside(m.Path, st.stat)
		}
		return fault(frame.CodeBadRequest, "unexpected %s", op.Type)
	})
	if err != nil {
		st.fail(fileFault(err))
		return
	}
	st.finish()
}

// place is a path below one of roots.
//
// os.Root alone isn't enough here: gVisor follows a link that is opened with O_NOFOLLOW and O_DIRECTORY, as Root opens the
// folders on its way, so links lead out. Hence each opened file is asked where it is, and names are only used in folders that were asked.
type place struct {
	root *os.Root
	top  string // the path of root
	name string // inside root
}

// inside gives f the place of a path. A relative one starts in the workspace.
func inside(name string, f func(place) error) error {
	if !path.IsAbs(name) {
		name = workspace + "/" + name
	}
	name = path.Clean(name)
	for _, top := range roots {
		rest, ok := strings.CutPrefix(name, top)
		if !ok || (rest != "" && rest[0] != '/') {
			continue
		}
		root, err := os.OpenRoot(top)
		if err != nil {
			return err
		}
		defer root.Close()
		return f(place{root, top, path.Join(".", rest)})
	}
	return fault(frame.CodePathOutside, "%s is not under %s", name, strings.Join(roots, " or "))
}

// open opens for reading whatever name stands for, without waiting: a FIFO would wait for its other end.
func (p place) open(name string) (*os.File, fs.FileInfo, error) {
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	where, err := os.Readlink(descriptor(f))
	if err == nil && where != p.top && !strings.HasPrefix(where, p.top+"/") {
		err = fault(frame.CodePathOutside, "%s leads out of %s", name, p.top)
	}
	info, err2 := f.Stat()
	if err := errors.Join(err, err2); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func descriptor(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// folder returns the folder that holds name, for use with the last element of name only.
func (p place) folder(name string, mkdirs bool) (*os.Root, error) {
	dir := path.Dir(name)
	f, info, err := p.open(dir)
	if mkdirs && errors.Is(err, fs.ErrNotExist) {
		var up *os.Root
		if up, err = p.folder(dir, true); err != nil {
			return nil, err
		}
		defer up.Close()
		if err := up.Mkdir(path.Base(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		f, info, err = p.open(dir)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !info.IsDir() {
		return nil, syscall.ENOTDIR
	}
	return os.OpenRoot(descriptor(f))
}

func (st *stream) read(p place, m frame.ReadMessage) error {
	f, info, err := p.open(p.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if !info.Mode().IsRegular() {
		return fault(frame.CodeNotRegular, "%s is not a regular file", m.Path)
	}
	if info.Size() > m.Max {
		return fault(frame.CodeTooLarge, "%d bytes, at most %d were asked for", info.Size(), m.Max)
	}
	if err := st.w.SendMessage(frame.Info, message(info)); err != nil {
		return err
	}
	buf := make([]byte, chunk)
	for left := m.Max; ; {
		n, err := f.Read(buf)
		if left -= int64(n); left < 0 {
			return fault(frame.CodeTooLarge, "the file grew over %d bytes", m.Max)
		}
		if err == io.EOF {
			return st.w.Send(frame.End, nil)
		}
		if err != nil {
			return err
		}
		if err := st.w.Send(frame.Data, buf[:n]); err != nil {
			return err
		}
	}
}

// write fills a new file and renames it, so that a broken upload leaves the old content. A link at the path is replaced, not followed.
func (st *stream) write(p place, m frame.WriteMessage) error {
	dir, err := p.folder(p.name, m.Mkdirs)
	if err != nil {
		return err
	}
	defer dir.Close()
	name := path.Base(p.name)
	mode := fs.FileMode(0o644)
	switch old, err := dir.Lstat(name); {
	case err == nil && old.Mode().IsRegular():
		mode = old.Mode().Perm()
	case err == nil && old.Mode().Type() != fs.ModeSymlink:
		return fault(frame.CodeNotRegular, "%s is not a regular file", m.Path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if m.Mode != 0 {
		mode = fs.FileMode(m.Mode)
	}
	part := ".portreeve-" + rand.Text()
	f, err := dir.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = st.receive(f, mode); err == nil {
		err = dir.Rename(part, name)
	}
	if err != nil {
		dir.Remove(part)
		return err
	}
	return st.describe(dir, name)
}

// receive writes the host's Data frames into f until End and closes f.
func (st *stream) receive(f *os.File, mode fs.FileMode) error {
	defer f.Close()
	if err := st.w.Send(frame.Ready, nil); err != nil {
		return err
	}
	for total := 0; ; {
		t, payload, err := st.r.Next(frame.MaxPayload)
		switch {
		case err != nil:
			return err
		case t == frame.End:
			return errors.Join(f.Chmod(mode), f.Close())
		case t != frame.Data:
			return fault(frame.CodeBadRequest, "unexpected %s", t)
		}
		if total += len(payload); total > frame.MaxFile {
			return fault(frame.CodeTooLarge, "over %d bytes", frame.MaxFile)
		}
		if _, err := f.Write(payload); err != nil {
			return err
		}
	}
}

func (st *stream) list(p place) error {
	f, info, err := p.open(p.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if !info.IsDir() {
		return syscall.ENOTDIR
	}
	for total := 0; ; {
		list, err := f.ReadDir(frame.EntriesPerFrame)
		if total += len(list); total > frame.MaxEntries {
			return fault(frame.CodeTooLarge, "more than %d entries", frame.MaxEntries)
		}
		var entries frame.EntriesMessage
		for _, entry := range list {
			if info, err := entry.Info(); err == nil { // else it is gone by now
				entries = append(entries, message(info))
			}
		}
		if len(entries) > 0 {
			err = errors.Join(err, st.w.SendMessage(frame.Entries, entries))
		}
		if errors.Is(err, io.EOF) {
			return st.w.Send(frame.End, nil)
		}
		if err != nil {
			return err
		}
	}
}

func (st *stream) stat(p place) error {
	dir, err := p.folder(p.name, false)
	if err != nil {
		return err
	}
	defer dir.Close()
	return st.describe(dir, path.Base(p.name))
}

func (st *stream) delete(p place, m frame.DeleteMessage) error {
	if p.name == "." {
		return fault(frame.CodeBadRequest, "%s itself stays", m.Path)
	}
	dir, err := p.folder(p.name, false)
	if err != nil {
		return err
	}
	defer dir.Close()
	name, remove := path.Base(p.name), dir.Remove
	if m.Recursive {
		remove = dir.RemoveAll
	}
	if _, err := dir.Lstat(name); err != nil { // RemoveAll is silent about it
		return err
	}
	if err := remove(name); err != nil {
		return err
	}
	return st.w.Send(frame.End, nil)
}

func (st *stream) describe(dir *os.Root, name string) error {
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	return st.w.SendMessage(frame.Info, message(info))
}

var kinds = map[fs.FileMode]frame.Kind{0: frame.KindFile, fs.ModeDir: frame.KindDir, fs.ModeSymlink: frame.KindSymlink}

func message(info fs.FileInfo) frame.InfoMessage {
	kind := cmp.Or(kinds[info.Mode().Type()], frame.KindOther)
	return frame.InfoMessage{Name: info.Name(), Kind: kind, Size: info.Size(), Mode: uint32(info.Mode().Perm()), Modified: info.ModTime().UnixMilli()}
}

// fileFault gives the kernel's answer one of our codes.
func fileFault(err error) error {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fault(frame.CodeNotFound, "%v", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault(frame.CodePermission, "%v", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault(frame.CodeNoSpace, "%v", err)
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENOTEMPTY):
		return fault(frame.CodeNotRegular, "%v", err)
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		return fault(frame.CodeBadRequest, "%v", err)
	case strings.HasSuffix(err.Error(), "path escapes from parent"): // os.Root has no sentinel for it
		return fault(frame.CodePathOutside, "%v", err)
	}
	return err
}
