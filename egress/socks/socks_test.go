package socks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"portreeve.dev/egress"
	"portreeve.dev/egress/credentials"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

var box = egress.Binding{Sandbox: "sbx_a", Org: "org_a", Incarnation: 1}

// A fakeProxy says yes and echoes, or no.
type fakeProxy struct {
	mu      sync.Mutex
	served  []proxy.DoorTarget
	refused []policies.Reason
	deny    policies.Reason
}

func (f *fakeProxy) ServeDoor(ctx context.Context, nc net.Conn, b egress.Binding, to proxy.DoorTarget) {
	defer nc.Close()
	f.mu.Lock()
	f.served = append(f.served, to)
	deny := f.deny
	f.mu.Unlock()
	if deny != "" {
		to.Answer(&proxy.DoorRefusal{Reason: deny})
		return
	}
	if to.Answer(nil) == nil {
		io.Copy(nc, nc)
	}
}

func (f *fakeProxy) RefuseDoor(_ context.Context, _ egress.Binding, _ proxy.DoorTarget, reason policies.Reason, _ string) *proxy.DoorRefusal {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = append(f.refused, reason)
	return &proxy.DoorRefusal{Reason: reason}
}

type door struct{ open bool }

func (d door) Known() (egress.Binding, bool) { return box, d.open }
func (d door) Admit(_ context.Context, username, password string) credentials.Admission {
	if d.open || username == "sbx_a" && password == "right" {
		return credentials.Admission{Binding: box}
	}
	return credentials.Admission{Binding: box, Reason: policies.ReasonCredential, Record: username == "sbx_a"}
}

type outcome struct {
	got     []byte
	served  []proxy.DoorTarget
	refused []policies.Reason
	counted int
}

// ask sends all bytes at once, shuts its side and reads to the end.
func ask(t *testing.T, keeper credentials.Keeper, deny policies.Reason, sent ...[]byte) outcome {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &fakeProxy{deny: deny}
	handshake := patience
	if len(sent) == 0 { // nothing has to happen within it
		handshake = 200 * time.Millisecond
	}
	var o outcome
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		Serve(context.Background(), nc, keeper, Config{Proxy: p, Handshake: handshake, Refused: func() { o.counted++ }})
	}()
	nc, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(patience))
	nc.Write(slices.Concat(sent...))
	if len(sent) > 0 {
		nc.(*net.TCPConn).CloseWrite()
	}
	if o.got, err = io.ReadAll(nc); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection was still open after %v", patience)
		nc.Close()
	}
	<-done
	o.served, o.refused = p.served, p.refused
	return o
}

var (
	withPassword = []byte{5, 1, 2}
	without      = []byte{5, 1, 0}
	right        = login("sbx_a", "right")
)

func login(username, password string) []byte {
	return slices.Concat([]byte{1, byte(len(username))}, []byte(username), []byte{byte(len(password))}, []byte(password))
}

func toName(name string, port uint16) []byte {
	return slices.Concat([]byte{5, 1, 0, 3, byte(len(name))}, []byte(name), []byte{byte(port >> 8), byte(port)})
}

func TestCredentialIsNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		keeper   door
		sent     [][]byte
		got      []byte
		passes   bool
		recorded bool
	}{
		"the right one":                          {door{}, [][]byte{withPassword, right}, []byte{5, 2, 1, 0}, true, false},
		"offered among others":                   {door{}, [][]byte{{5, 3, 0, 1, 2}, right}, []byte{5, 2, 1, 0}, true, false},
		"a wrong one":                            {door{}, [][]byte{withPassword, login("sbx_a", "wrong")}, []byte{5, 2, 1, 1}, false, true},
		"nobody's":                               {door{}, [][]byte{withPassword, login("sbx_c", "right")}, []byte{5, 2, 1, 1}, false, false},
		"none offered":                           {door{}, [][]byte{without}, []byte{5, 0xff}, false, false},
		"only one that nobody speaks":            {door{}, [][]byte{{5, 1, 1}}, []byte{5, 0xff}, false, false},
		"left out":                               {door{}, [][]byte{withPassword}, []byte{5, 2}, false, false},
		"an empty password":                      {door{}, [][]byte{withPassword, login("sbx_a", "")}, []byte{5, 2}, false, false},
		"none, on the sandbox's own socket":      {door{open: true}, [][]byte{without}, []byte{5, 0}, true, false},
		"whichever, on the sandbox's own socket": {door{open: true}, [][]byte{withPassword, login("x", "y")}, []byte{5, 2, 1, 0}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := ask(t, c.keeper, "", append(c.sent, toName("good.test", 443), []byte("hello"))...)
			want := c.got
			if c.passes {
				want = slices.Concat(want, reply(Succeeded), []byte("hello"))
			}
			if !bytes.Equal(o.got, want) || (len(o.served) == 1) != c.passes || (len(o.refused) == 1) != c.recorded {
				t.Errorf("it got %v, want %v; served %v, refused %v", o.got, want, o.served, o.refused)
			}
			if !c.passes && !c.recorded && o.counted != 1 {
				t.Errorf("%d counted", o.counted)
			}
		})
	}
}

func TestOnlyNamesPass(t *testing.T) {
	for name, c := range map[string]struct {
		request []byte
		code    Reply
		reason  policies.Reason // empty: it passes
	}{
		"a name":                       {toName("good.test", 443), Succeeded, ""},
		"a name in another spelling":   {toName("GOOD.test.", 443), Succeeded, ""},
		"IPv4":                         {[]byte{5, 1, 0, 1, 203, 0, 113, 5, 1, 187}, NoAddressing, policies.ReasonHostInvalid},
		"IPv6":                         {slices.Concat([]byte{5, 1, 0, 4}, make([]byte, 15), []byte{1, 1, 187}), NoAddressing, policies.ReasonHostInvalid},
		"IPv4 as a name":               {toName("203.0.113.5", 443), NotAllowed, policies.ReasonHostInvalid},
		"IPv6 as a name":               {toName("::1", 443), NotAllowed, policies.ReasonHostInvalid},
		"an address in disguise (B16)": {toName("2130706433", 443), NotAllowed, policies.ReasonHostInvalid},
		"in hexadecimal":               {toName("0x7f.1", 443), NotAllowed, policies.ReasonHostInvalid},
		"a NUL (B15)":                  {toName("evil.test\x00.good.test", 443), NotAllowed, policies.ReasonHostInvalid},
		"an escaped NUL":               {toName("evil.test%00.good.test", 443), NotAllowed, policies.ReasonHostInvalid},
		"user information":             {toName("good.test@evil.test", 443), NotAllowed, policies.ReasonHostInvalid},
		"a port in the name":           {toName("good.test:443", 443), NotAllowed, policies.ReasonHostInvalid},
		"two dots":                     {toName("good.test..", 443), NotAllowed, policies.ReasonHostInvalid},
		"port 0":                       {toName("good.test", 0), NotAllowed, policies.ReasonHostInvalid},
		"BIND":                         {[]byte{5, 2, 0, 3, 1, 'a', 1, 187}, NoCommand, policies.ReasonProtocol},
		"UDP":                          {[]byte{5, 3, 0, 3, 1, 'a', 1, 187}, NoCommand, policies.ReasonProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			o := ask(t, door{open: true}, "", without, c.request)
			if want := slices.Concat([]byte{5, 0}, reply(c.code)); !bytes.Equal(o.got, want) {
				t.Errorf("it got %v, want %v", o.got, want)
			}
			if c.reason == "" {
				if len(o.served) != 1 || o.served[0].Host != "good.test" || o.served[0].Port != 443 || o.served[0].Addr.IsValid() || len(o.refused) != 0 {
					t.Errorf("served %+v, refused %v", o.served, o.refused)
				}
			} else if len(o.served) != 0 || !slices.Equal(o.refused, []policies.Reason{c.reason}) {
				t.Errorf("served %+v, refused %v", o.served, o.refused)
			}
		})
	}
}

func TestBrokenMessages(t *testing.T) {
	for name, c := range map[string]struct {
		sent   [][]byte
		reason policies.Reason
	}{
		"another version":           {[][]byte{{4, 1, 0, 0, 0, 0}}, policies.ReasonParse},
		"no methods":                {[][]byte{{5, 0, 0}}, policies.ReasonParse},
		"cut methods":               {[][]byte{{5, 9, 0}}, policies.ReasonParse},
		"another version of login":  {[][]byte{withPassword, {2, 1, 'a', 1, 'b'}}, policies.ReasonParse},
		"an empty user name":        {[][]byte{withPassword, login("", "x")}, policies.ReasonParse},
		"a request's other version": {[][]byte{without, {4, 1, 0, 3, 1, 'a', 0, 80}}, policies.ReasonParse},
		"something reserved":        {[][]byte{without, {5, 1, 1, 3, 1, 'a', 0, 80}}, policies.ReasonParse},
		"an unknown kind":           {[][]byte{without, {5, 1, 0, 2, 1, 'a', 0, 80}}, policies.ReasonParse},
		"an empty name":             {[][]byte{without, {5, 1, 0, 3, 0, 0, 80}}, policies.ReasonParse},
		"a cut name":                {[][]byte{without, {5, 1, 0, 3, 9, 'a', 0, 80}}, policies.ReasonParse},
	} {
		t.Run(name, func(t *testing.T) {
			o := ask(t, door{open: true}, "", c.sent...)
			if len(o.served) != 0 || !slices.Equal(o.refused, []policies.Reason{c.reason}) {
				t.Errorf("served %v, refused %v", o.served, o.refused)
			}
		})
	}
}

func TestRefusalsHaveTheirReply(t *testing.T) {
	for reason, code := range map[policies.Reason]Reply{policies.ReasonNoRule: NotAllowed, policies.ReasonFloorHard: NotAllowed,
		policies.ReasonStalePolicy: Failure, policies.ReasonBudget: Failure} {
		o := ask(t, door{open: true}, reason, without, toName("evil.test", 443), []byte("behind"))
		if want := slices.Concat([]byte{5, 0}, reply(code)); !bytes.Equal(o.got, want) {
			t.Errorf("%s: %v, want %v", reason, o.got, want)
		}
	}
}

func TestSilentClientIsClosed(t *testing.T) {
	o := ask(t, door{open: true}, "")
	if len(o.got) != 0 || !slices.Equal(o.refused, []policies.Reason{policies.ReasonTimeout}) {
		t.Errorf("it got %v, refused %v", o.got, o.refused)
	}
	if o = ask(t, door{}, ""); len(o.got) != 0 || len(o.refused) != 0 || o.counted != 1 {
		t.Errorf("one of nobody known got %v, refused %v, counted %d", o.got, o.refused, o.counted)
	}
}

// countedReader gives one byte at a time and fails where it was read too far.
type countedReader struct {
	t     *testing.T
	data  []byte
	limit int
}

func (r *countedReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.limit == 0 {
		r.t.Error("a byte too many was asked for")
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.limit)], r.data)
	if len(p) > r.limit {
		r.t.Errorf("%d bytes were asked for where %d are left", len(p), r.limit)
	}
	r.data, r.limit = r.data[n:], r.limit-n
	return n, nil
}

func TestReadsNoByteTooMany(t *testing.T) {
	for name, c := range map[string]struct {
		message []byte
		read    func(io.Reader) error
	}{
		"greeting": {[]byte{5, 3, 0, 1, 2}, func(r io.Reader) error { _, err := readMethods(r); return err }},
		"login":    {right, func(r io.Reader) error { _, _, err := readLogin(r); return err }},
		"request":  {toName("good.test", 443), func(r io.Reader) error { _, err := readRequest(r); return err }},
	} {
		r := &countedReader{t, append(slices.Clone(c.message), "behind"...), len(c.message)}
		if err := c.read(r); err != nil || string(r.data) != "behind" {
			t.Errorf("%s: %v, left %q", name, err, r.data)
		}
	}
}

// Whatever comes, reading ends; and what is read writes back as it was.
func FuzzMessages(f *testing.F) {
	f.Add(slices.Concat(withPassword, right, toName("good.test", 443)))
	f.Add([]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		methods, err := readMethods(r)
		if err != nil {
			return
		}
		if want := slices.Concat([]byte{5, byte(len(methods))}, methods); !bytes.HasPrefix(b, want) {
			t.Fatalf("%v read as %v", b, methods)
		}
		rest := b[len(b)-r.Len():]
		if username, password, err := readLogin(bytes.NewReader(rest)); err == nil && !bytes.HasPrefix(rest, login(username, password)) {
			t.Fatalf("%v read as %q, %q", rest, username, password)
		}
		if q, err := readRequest(bytes.NewReader(rest)); err == nil && q.command == 1 && q.kind == kindName && !bytes.HasPrefix(rest, toName(q.name, q.port)) {
			t.Fatalf("%v read as %+v", rest, q)
		}
	})
}
