package link

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// MaxFiles is how many open files one message carries at most.
const MaxFiles = 8

// A frame is 4 bytes of length, big endian, and a JSON message. Its files travel with the length (SCM_RIGHTS), so that
// they arrive with the first byte of the frame they belong to.
type message struct {
	ID     uint64          `json:"id,omitempty"`     // of the call; 0 is a notice
	Reply  bool            `json:"reply,omitempty"`  // this answers the call ID
	Method string          `json:"method,omitempty"` // of a call or notice
	Files  int             `json:"files,omitempty"`  // how many travel with it
	Error  *Error          `json:"error,omitempty"`  // of a reply
	Body   json.RawMessage `json:"body,omitempty"`

	files []*os.File
}

// An Error is a failure that crossed a link: a code for programs, a sentence for the log.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// ErrClosed reports that the peer is gone.
var ErrClosed = errors.New("link closed")

func writeFrame(c *net.UnixConn, m *message) error {
	m.Files = len(m.files)
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding %q: %w", m.Method, err)
	}
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(body)))
	var oob []byte
	if len(m.files) > 0 {
		fds := make([]int, len(m.files))
		for i, f := range m.files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	if n, _, err := c.WriteMsgUnix(head[:], oob, nil); err != nil || n != len(head) {
		return errors.Join(err, ErrClosed)
	}
	_, err = c.Write(body)
	return err
}

func readFrame(c *net.UnixConn, limit int) (*message, error) {
	var head [4]byte
	files, err := readHead(c, head[:])
	if err != nil {
		closeAll(files)
		return nil, err
	}
	m, err := readBody(c, int(binary.BigEndian.Uint32(head[:])), limit)
	if err != nil {
		closeAll(files)
		return nil, err
	}
	if m.Files != len(files) {
		closeAll(files)
		return nil, fmt.Errorf("message %q names %d files and brought %d", m.Method, m.Files, len(files))
	}
	m.files = files
	return m, nil
}

func readBody(c *net.UnixConn, size, limit int) (*message, error) {
	if size > limit {
		return nil, fmt.Errorf("frame of %d bytes is over the limit of %d", size, limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, err
	}
	m := new(message)
	if err := strictly(body, m); err != nil {
		return nil, fmt.Errorf("decoding frame: %w", err)
	}
	return m, nil
}

// readHead reads the four length bytes and whatever files came with them.
func readHead(c *net.UnixConn, head []byte) (files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	for got := 0; got < len(head); {
		n, on, flags, _, err := c.ReadMsgUnix(head[got:], oob)
		if on > 0 {
			more, perr := parseFiles(oob[:on])
			files = append(files, more...)
			err = errors.Join(err, perr)
		}
		if err != nil {
			return files, err
		}
		if n == 0 {
			return files, io.EOF
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return files, errors.New("more files than a message may carry")
		}
		got += n
	}
	return files, nil
}

func parseFiles(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("reading passed files: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
