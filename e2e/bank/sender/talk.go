package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A talk is the connection that the steps of a case share.
type talk struct {
	job   *job
	path  string
	limit time.Duration
	conn  net.Conn
	r     *bufio.Reader
	open  []net.Conn

	secrets bytes.Buffer // key log of the newest TLS client
}

func (t *talk) close() {
	for _, c := range t.open {
		c.Close()
	}
}

func (t *talk) use(c net.Conn) {
	t.conn, t.r = c, bufio.NewReader(c)
	t.open = append(t.open, c)
}

func ok(format string, args ...any) said {
	return said{OK: true, Outcome: fmt.Sprintf(format, args...)}
}
func bad(format string, args ...any) said { return said{Outcome: fmt.Sprintf(format, args...)} }

func (t *talk) do(s step) said {
	if t.conn != nil {
		t.conn.SetDeadline(time.Now().Add(t.limit))
	}
	switch {
	case s.Connect != "":
		return t.begin(s.Connect, t.path)
	case s.Dial != "":
		return t.begin(s.Dial, "")
	case s.Early != "":
		c, err := t.early(s.Early)
		if err != nil {
			return bad("%s", word(err))
		}
		t.use(c)
		return ok("ready")
	case s.Ask != nil && s.Ask.Again > 0:
		return t.askAgain(s.Ask)
	case s.Ask != nil:
		return t.ask(s.Ask)
	case s.DNS != nil:
		return t.lookup(s.DNS)
	case s.UDP != nil:
		return t.packet(s.UDP)
	case s.Scan != nil:
		return t.scan(s.Scan)
	case s.Raw != nil:
		return raw(s.Raw)
	case s.Many != nil:
		return t.many(s.Many)
	case s.Socket != nil:
		return t.socket(s.Socket)
	case s.Run != nil:
		return t.program(s.Run)
	case s.Pause > 0:
		time.Sleep(time.Duration(s.Pause) * time.Millisecond)
		return ok("paused")
	case t.conn == nil:
		return bad("no connection yet")
	case s.TLS != nil:
		return t.secure(s.TLS)
	case s.Keys != nil:
		return t.updateKeys(s.Keys)
	case s.Frames != nil:
		return t.frames(s.Frames)
	case s.Send != "":
		return t.write([]byte(strings.ReplaceAll(s.Send, "{auth}", "Proxy-Authorization: Basic "+t.job.HTTP.basic()+"\r\n")))
	case s.Hex != "":
		data, _ := unhex(s.Hex)
		return t.write(data)
	case s.Repeat != nil:
		return t.repeat(s.Repeat)
	case s.Shut:
		if c, is := t.conn.(interface{ CloseWrite() error }); is {
			return of(c.CloseWrite(), "shut")
		}
		return bad("can't be shut")
	}
	return t.read(s.Read)
}

// of is a step without an answer.
func of(err error, done string) said {
	if err != nil {
		return bad("%s", word(err))
	}
	return ok("%s", done)
}

// word says how something failed.
func word(err error) string {
	var timeout net.Error
	var cert x509.UnknownAuthorityError
	var name x509.HostnameError
	var denied *notFound
	switch {
	case errors.As(err, &denied):
		return denied.word
	case errors.As(err, &cert), errors.As(err, &name):
		return "certificate"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "unreachable"
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return "not permitted"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	}
	if _, alert, is := strings.Cut(err.Error(), "remote error: tls: "); is {
		return "alert: " + alert
	}
	return err.Error()
}

func (t *talk) begin(to, path string) said {
	c, err := t.dial(to, path)
	if err != nil {
		return bad("%s", word(err))
	}
	t.use(c)
	return ok("connected")
}

// dial connects by the path, to a name or an address.
func (t *talk) dial(to, path string) (net.Conn, error) {
	switch {
	case to == "{proxy}":
	case path == "explicit":
		return t.connectBy(to)
	case path == "socks":
		return t.socksBy(to)
	}
	return t.straight(to)
}

func (t *talk) straight(to string) (net.Conn, error) {
	if to == "{proxy}" {
		return t.job.HTTP.open(t)
	}
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	if host == "resolver" {
		host = nameServer()
	}
	if _, err := netip.ParseAddr(host); err != nil {
		if host, err = t.resolve(host); err != nil {
			return nil, err
		}
	}
	c, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), t.limit)
	if err == nil {
		c.SetDeadline(time.Now().Add(t.limit))
	}
	return c, err
}

type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

func (b *buffered) CloseWrite() error { return b.Conn.(interface{ CloseWrite() error }).CloseWrite() }

func (t *talk) write(data []byte) said {
	_, err := t.conn.Write(data)
	return of(err, "sent")
}

// repeat stops quietly when the other side has ended, as what it said is read later.
func (t *talk) repeat(r *repeat) said {
	block, each := []byte(r.Text), 1
	if r.Every == 0 && len(block) < 16<<10 {
		each = max(1, min(r.Times, 16<<10/max(1, len(block))))
		block = []byte(strings.Repeat(r.Text, each))
	}
	for n := 0; n < r.Times; n += each {
		t.conn.SetDeadline(time.Now().Add(t.limit))
		if left := r.Times - n; left < each {
			block = []byte(strings.Repeat(r.Text, left))
		}
		if _, err := t.conn.Write(block); err != nil {
			return ok("cut after %d: %s", n, word(err))
		}
		time.Sleep(time.Duration(r.Every) * time.Millisecond)
	}
	return ok("sent")
}

func (t *talk) read(what string) said {
	switch what {
	case "answer":
		return answer(t.r, "GET")
	case "end":
		n, err := io.Copy(io.Discard, t.r)
		if err == nil {
			err = io.EOF
		}
		if w := word(err); w == "eof" || w == "reset" || strings.HasPrefix(w, "alert") {
			return ok("%s after %d bytes", w, n)
		}
		return bad("%s after %d bytes", word(err), n)
	case "line":
		line, err := t.r.ReadString('\n')
		if err != nil {
			return bad("%s", word(err))
		}
		return ok("%s", strings.TrimSpace(line))
	case "some":
		buf := make([]byte, 2048)
		n, err := t.r.Read(buf)
		if n == 0 {
			return bad("%s", word(err))
		}
		return ok("%q", buf[:n])
	}
	var all []byte
	for !strings.Contains(string(all), what) {
		b, err := t.r.ReadByte()
		if err != nil {
			return said{Outcome: word(err), Body: cut(string(all))}
		}
		all = append(all, b)
	}
	return said{OK: true, Outcome: what, Body: cut(string(all))}
}

// answer reads one answer and says its status.
func answer(r *bufio.Reader, method string) said {
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return bad("%s", word(err))
	}
	var head strings.Builder
	resp.Header.Write(&head)
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	resp.Body.Close()
	s := said{OK: true, Outcome: fmt.Sprint(resp.StatusCode), Body: cut(string(body)), Head: cut(head.String())}
	if err != nil {
		s.OK, s.Outcome = false, s.Outcome+" cut: "+word(err)
	}
	for name, values := range resp.Trailer {
		s.Head += name + ": " + strings.Join(values, ", ") + "\r\n"
	}
	return s
}

func cut(s string) string { return s[:min(len(s), 1500)] }

func (t *talk) program(argv []string) said {
	ctx, cancel := context.WithTimeout(context.Background(), t.limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	code := 0
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return said{Outcome: "timeout", Body: cut(string(out))}
	case errors.As(err, &exit):
		if code = exit.ExitCode(); code < 0 {
			return said{Outcome: exit.String(), Body: cut(string(out))}
		}
	case err != nil:
		return bad("%v", err)
	}
	return said{OK: code == 0, Outcome: fmt.Sprintf("exit %d", code), Body: cut(string(out))}
}

// many opens connections, lets them be, and counts those that the other side has not ended.
func (t *talk) many(m *many) said {
	data, err := unhex(m.Hex)
	if err != nil {
		return bad("%v", err)
	}
	data = append([]byte(m.Send), data...)
	var conns []net.Conn
	for range m.Count {
		c, err := t.dial(m.To, t.path)
		if err != nil {
			return bad("%s after %d", word(err), len(conns))
		}
		c.SetWriteDeadline(time.Now().Add(t.limit))
		t.open = append(t.open, c)
		conns = append(conns, c)
		c.Write(data)
	}
	end := time.Now().Add(time.Duration(m.After) * time.Millisecond)
	left := 0
	for _, c := range conns {
		c.SetReadDeadline(end)
		if _, err := io.Copy(io.Discard, c); err != nil && word(err) == "timeout" {
			left++
		}
	}
	return said{OK: left == 0, Outcome: fmt.Sprintf("%d of %d left", left, len(conns))}
}
