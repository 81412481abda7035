package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

// FileInfo describes one file in the sandbox's words.
type FileInfo struct {
	Name     string
	Kind     frame.Kind
	Size     int64
	Mode     fs.FileMode // permission bits
	Modified time.Time
}

func fileInfo(m frame.InfoMessage) FileInfo {
	return FileInfo{Name: m.Name, Kind: m.Kind, Size: m.Size, Mode: fs.FileMode(m.Mode), Modified: time.UnixMilli(m.Modified).UTC()}
}

// File is a file that is being read. Read returns io.EOF only after the whole file has come. Close must be called.
type File struct {
	Info FileInfo
	call *call
	rest []byte
	err  error
}

// ReadFile opens a regular file of at most limit bytes, at most frame.MaxFile. ErrTooLarge comes here, or from Read for a file that grows.
func (c *Client) ReadFile(ctx context.Context, path string, limit int64) (*File, error) {
	k, err := c.start(ctx, frame.Operation{Type: frame.OpRead, Message: frame.ReadMessage{Path: path, Max: limit}})
	if err != nil {
		return nil, err
	}
	info, err := k.info()
	if err != nil {
		k.close()
		return nil, err
	}
	return &File{Info: info, call: k}, nil
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	for len(f.rest) == 0 && f.err == nil {
		t, payload, err := f.call.next()
		if err == nil && t == frame.End {
			err = io.EOF
		}
		f.rest, f.err = payload, err
	}
	if f.err != nil {
		return 0, f.err
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (f *File) Close() error {
	f.call.close()
	return nil
}

// WriteOptions of WriteFile.
type WriteOptions struct {
	Mode   fs.FileMode // permission bits; 0: those of the file that is replaced, else 0644
	Mkdirs bool        // make missing folders
}

// WriteFile replaces the file by what it reads from content. After an error the old file is still there, whole.
func (c *Client) WriteFile(ctx context.Context, path string, content io.Reader, o WriteOptions) (FileInfo, error) {
	m := frame.WriteMessage{Path: path, Mode: uint32(o.Mode), Mkdirs: o.Mkdirs}
	k, err := c.start(ctx, frame.Operation{Type: frame.OpWrite, Message: m})
	if err != nil {
		return FileInfo{}, err
	}
	defer k.close()
	if _, _, err := k.next(); err != nil { // Ready
		return FileInfo{}, err
	}
	sent := make(chan error, 1)
	go func() {
		err := k.upload(content)
		sent <- err
		if err != nil && !errors.Is(err, ErrUnavailable) { // the source is to blame; init drops what comes without an End
			k.conn.Close()
		}
	}()
	info, err := k.info()
	if err == nil {
		return info, nil
	}
	k.close() // ends upload, if it writes; if it waits in content.Read, it ends with that
	var refused *OperationError
	select {
	case cause := <-sent:
		if cause != nil && !errors.As(err, &refused) {
			err = cause
		}
	default:
	}
	return FileInfo{}, err
}

// upload sends content and End.
func (k *call) upload(content io.Reader) error {
	buf := make([]byte, frame.MaxPayload)
	for {
		n, err := content.Read(buf)
		if n > 0 {
			payload, err := k.fromHost(frame.Data, buf[:n])
			if err != nil {
				return fmt.Errorf("%w: %w", ErrTooLarge, err)
			}
			if err := k.w.Send(frame.Data, payload); err != nil {
				return k.why(err)
			}
		}
		if err == io.EOF {
			k.fromHost(frame.End, nil)
			return k.why(k.w.Send(frame.End, nil))
		}
		if err != nil {
			return fmt.Errorf("reading the new content: %w", err)
		}
	}
}

// List returns the entries of a folder by name, at most frame.MaxEntries.
func (c *Client) List(ctx context.Context, path string) ([]FileInfo, error) {
	k, err := c.start(ctx, frame.Operation{Type: frame.OpList, Message: frame.PathMessage{Path: path}})
	if err != nil {
		return nil, err
	}
	defer k.close()
	var all []FileInfo
	for {
		t, payload, err := k.next()
		if err != nil {
			return nil, err
		}
		if t == frame.End {
			sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
			return all, nil
		}
		entries, err := frame.Decode[frame.EntriesMessage](payload)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			all = append(all, fileInfo(e))
		}
	}
}

// Stat describes a file, of a link the link itself.
func (c *Client) Stat(ctx context.Context, path string) (FileInfo, error) {
	k, err := c.start(ctx, frame.Operation{Type: frame.OpStat, Message: frame.PathMessage{Path: path}})
	if err != nil {
		return FileInfo{}, err
	}
	defer k.close()
	return k.info()
}

// Delete removes a file or an empty folder, with recursive a folder and all in it.
func (c *Client) Delete(ctx context.Context, path string, recursive bool) error {
	k, err := c.start(ctx, frame.Operation{Type: frame.OpDelete, Message: frame.DeleteMessage{Path: path, Recursive: recursive}})
	if err != nil {
		return err
	}
	defer k.close()
	_, _, err = k.next()
	return err
}

// info takes an Info frame.
func (k *call) info() (FileInfo, error) {
	_, payload, err := k.next()
	if err != nil {
		return FileInfo{}, err
	}
	m, err := frame.Decode[frame.InfoMessage](payload)
	return fileInfo(m), err
}
