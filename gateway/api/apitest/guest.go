package apitest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"portreeve.dev/gateway/api"
	"portreeve.dev/nodes/guest/frame"
)

// A Guest does in a folder of this machine what init does in a sandbox: /workspace and /tmp of each sandbox are folders below Root.
type Guest struct {
	Root string

	mu       sync.Mutex
	failing  error // every operation answers this
	notReady error
	waits    chan struct{} // Ready waits for it
}

var _ api.Guest = (*Guest)(nil)

// Break makes every operation fail with err; nil mends it.
func (g *Guest) Break(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failing = err
}

// NotReady makes Ready fail with err, or wait for a channel if one is given.
func (g *Guest) NotReady(err error, waits chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notReady, g.waits = err, waits
}

func (g *Guest) broken() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failing
}

// Ready implements sandboxes.Readier.
func (g *Guest) Ready(ctx context.Context, id string) error {
	g.mu.Lock()
	err, waits := g.notReady, g.waits
	g.mu.Unlock()
	if waits != nil {
		select {
		case <-waits:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(g.path(id, "/workspace"), 0o755), os.MkdirAll(g.path(id, "/tmp"), 0o755))
}

func (g *Guest) path(sandbox, p string) string {
	return filepath.Join(g.Root, sandbox, filepath.Clean("/"+p))
}

func (g *Guest) Read(_ context.Context, sandbox, p string, most int64) (io.ReadCloser, frame.InfoMessage, error) {
	if err := g.broken(); err != nil {
		return nil, frame.InfoMessage{}, err
	}
	f, err := os.Open(g.path(sandbox, p))
	if err != nil {
		return nil, frame.InfoMessage{}, code(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &api.GuestError{Code: frame.CodeNotRegular}
	} else if err == nil && info.Size() > most {
		err = &api.GuestError{Code: frame.CodeTooLarge}
	}
	if err != nil {
		f.Close()
		return nil, frame.InfoMessage{}, code(err)
	}
	return f, message(info), nil
}

func (g *Guest) Write(_ context.Context, sandbox string, m frame.WriteMessage, content io.Reader) error {
	if err := g.broken(); err != nil {
		return err
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	at := g.path(sandbox, m.Path)
	if m.Mkdirs {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return code(err)
		}
	}
	mode := fs.FileMode(m.Mode)
	if mode == 0 {
		mode = 0o644
	}
	return code(os.WriteFile(at, data, mode))
}

func (g *Guest) List(_ context.Context, sandbox, p string) ([]frame.InfoMessage, error) {
	if err := g.broken(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(g.path(sandbox, p))
	if err != nil {
		return nil, code(err)
	}
	var all []frame.InfoMessage
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			all = append(all, message(info))
		}
	}
	return all, nil
}

func (g *Guest) Delete(_ context.Context, sandbox string, m frame.DeleteMessage) error {
	if err := g.broken(); err != nil {
		return err
	}
	at := g.path(sandbox, m.Path)
	if _, err := os.Lstat(at); err != nil {
		return code(err)
	}
	if m.Recursive {
		return code(os.RemoveAll(at))
	}
	return code(os.Remove(at))
}

func message(info fs.FileInfo) frame.InfoMessage {
	m := frame.InfoMessage{Name: info.Name(), Kind: frame.KindFile, Size: info.Size(), Mode: uint32(info.Mode().Perm()), Modified: info.ModTime().UnixMilli()}
	if info.IsDir() {
		m.Kind = frame.KindDir
	}
	return m
}

func code(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &api.GuestError{Code: frame.CodeNotFound}
	case errors.Is(err, fs.ErrPermission):
		return &api.GuestError{Code: frame.CodePermission}
	case strings.Contains(err.Error(), "guest: "):
		return err
	}
	return &api.GuestError{Code: frame.CodeNotRegular}
}
