package ca

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// roots is a Signer over the roots of several orgs, with a switch that makes it fail.
type roots struct {
	mu     sync.Mutex
	orgs   map[string]*Root
	signed int
	fail   error
	now    func() time.Time
	from   func() time.Time // nil: now
}

func (r *roots) Intermediate(_ context.Context, org string, key *ecdsa.PublicKey) ([][]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return nil, r.fail
	}
	r.signed++
	c, err := r.orgs[org].Intermediate(key, r.begin(), r.now())
	if err != nil {
		return nil, err
	}
	return [][]byte{c.Raw, r.orgs[org].Certificate.Raw}, nil
}

func (r *roots) begin() time.Time {
	if r.from == nil {
		return r.now()
	}
	return r.from()
}

// setUp is an issuer for the orgs a and b whose clock the test moves.
func setUp(t *testing.T) (*Issuer, *roots, *time.Time) {
	t.Helper()
	now := began
	r := &roots{orgs: map[string]*Root{}, now: func() time.Time { return now }}
	for _, org := range []string{"a", "b"} {
		root, err := NewRoot("org "+org, now, now)
		if err != nil {
			t.Fatal(err)
		}
		r.orgs[org] = root
	}
	i, err := NewIssuer(IssuerConfig{Signer: r, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return i, r, &now
}

func leaf(t *testing.T, i *Issuer, org, host string) *tls.Certificate {
	t.Helper()
	c, err := i.Leaf(t.Context(), org, host)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func verify(c *tls.Certificate, root *Root, host string, at time.Time) error {
	pool, between := x509.NewCertPool(), x509.NewCertPool()
	pool.AddCert(root.Certificate)
	for _, der := range c.Certificate[1:] {
		if mid, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(mid)
		}
	}
	_, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: pool, Intermediates: between, CurrentTime: at})
	return err
}

func TestLeafNamesOneHost(t *testing.T) {
	i, r, now := setUp(t)
	c := leaf(t, i, "a", "api.test")
	if err := verify(c, r.orgs["a"], "api.test", *now); err != nil {
		t.Fatalf("for its own name: %v", err)
	}
	for _, other := range []string{"x.api.test", "test", "evil.test"} {
		if verify(c, r.orgs["a"], other, *now) == nil {
			t.Errorf("it is good for %s too", other)
		}
	}
	if len(c.Leaf.DNSNames) != 1 || len(c.Leaf.IPAddresses) != 0 || c.Leaf.IsCA {
		t.Errorf("names %v, addresses %v, CA %v", c.Leaf.DNSNames, c.Leaf.IPAddresses, c.Leaf.IsCA)
	}
}

func TestOrgsDoNotCross(t *testing.T) {
	i, r, now := setUp(t)
	a, b := leaf(t, i, "a", "api.test"), leaf(t, i, "b", "api.test")
	if verify(a, r.orgs["b"], "api.test", *now) == nil || verify(b, r.orgs["a"], "api.test", *now) == nil {
		t.Error("one org's root trusts the other's leaf")
	}
	if err := errors.Join(verify(a, r.orgs["a"], "api.test", *now), verify(b, r.orgs["b"], "api.test", *now)); err != nil {
		t.Errorf("each under its own: %v", err)
	}
	if a.PrivateKey.(*ecdsa.PrivateKey).Equal(b.PrivateKey) {
		t.Error("two orgs share a key")
	}
}

func TestIntermediateIsShortAndLast(t *testing.T) {
	_, r, now := setUp(t)
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	mid, err := r.orgs["a"].Intermediate(&key.PublicKey, *now, *now)
	if err != nil {
		t.Fatal(err)
	}
	if mid.NotAfter.Sub(*now) > Lifetime || !mid.MaxPathLenZero || mid.MaxPathLen != 0 || !mid.IsCA {
		t.Fatalf("ends after %v, path length %d (%v)", mid.NotAfter.Sub(*now), mid.MaxPathLen, mid.MaxPathLenZero)
	}
	wrong, err := ecdsa.GenerateKey(elliptic.P384(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.orgs["a"].Intermediate(&wrong.PublicKey, *now, *now); err == nil {
		t.Fatal("a key on another curve was signed")
	}
}

func TestKeysAndSerialsAreFresh(t *testing.T) {
	first, r, now := setUp(t)
	second, err := NewIssuer(IssuerConfig{Signer: r, Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	a, b := leaf(t, first, "a", "api.test"), leaf(t, second, "a", "api.test")
	if a.PrivateKey.(*ecdsa.PrivateKey).Equal(b.PrivateKey) || a.Leaf.SerialNumber.Cmp(b.Leaf.SerialNumber) == 0 {
		t.Fatal("the same org and host gave the same key or serial twice")
	}
}

func TestLeavesAreKeptAndRenewed(t *testing.T) {
	i, r, now := setUp(t)
	a := leaf(t, i, "a", "api.test")
	if b := leaf(t, i, "a", "api.test"); a != b {
		t.Error("the second call signed anew")
	}
	*now = began.Add(Lifetime - renewBefore - time.Second)
	if b := leaf(t, i, "a", "api.test"); a != b {
		t.Error("it was replaced too early")
	}
	*now = began.Add(Lifetime - renewBefore + time.Second)
	c := leaf(t, i, "a", "api.test")
	if c == a || verify(c, r.orgs["a"], "api.test", *now) != nil {
		t.Error("it was not replaced before its end")
	}
}

// TestSetClockGetsAnother: those to whom a leaf is shown go by the machine's clock, which may be set back and right again; its end comes by
// ours.
func TestSetClockGetsAnother(t *testing.T) {
	i, r, now := setUp(t)
	shown := began
	i.config.Shown = func() time.Time { return shown }
	r.from = func() time.Time { return shown }
	a := leaf(t, i, "a", "api.test")
	shown = began.Add(Backdate / -2)
	if leaf(t, i, "a", "api.test") != a {
		t.Error("a leaf that has begun was replaced")
	}
	shown = began.Add(-2 * Backdate)
	b := leaf(t, i, "a", "api.test")
	if err := verify(b, r.orgs["a"], "api.test", began); b == a || b.Leaf.NotBefore.After(shown) || err != nil {
		t.Errorf("a leaf that begins at %v is shown at %v; %v", b.Leaf.NotBefore, shown, err)
	}
	if leaf(t, i, "a", "api.test") != b {
		t.Error("each call signs anew while the clock is behind")
	}
	r.fail = errors.New("control is gone")
	*now = began.Add(Lifetime + time.Minute) // by the machine's clock it goes on
	if _, err := i.Leaf(t.Context(), "a", "api.test"); !errors.Is(err, r.fail) {
		t.Errorf("what has ended is shown while the clock is behind: %v", err)
	}
}

func TestControlGone(t *testing.T) {
	i, r, now := setUp(t)
	leaf(t, i, "a", "api.test")
	r.fail = errors.New("control is gone")
	*now = began.Add(Lifetime - time.Minute)
	leaf(t, i, "a", "other.test") // under the intermediate that still lives
	*now = began.Add(Lifetime + time.Minute)
	if _, err := i.Leaf(t.Context(), "a", "third.test"); !errors.Is(err, r.fail) {
		t.Fatalf("got %v, want that control is gone", err)
	}
}

func TestManyCallersSignOnce(t *testing.T) {
	i, r, _ := setUp(t)
	var all sync.WaitGroup
	got := make([]*tls.Certificate, 50)
	for n := range got {
		all.Go(func() { got[n], _ = i.Leaf(t.Context(), "a", "api.test") })
	}
	all.Wait()
	for _, c := range got {
		if c == nil || c != got[0] {
			t.Fatal("callers got different leaves, or none")
		}
	}
	if r.signed != 1 {
		t.Errorf("control signed %d intermediates, want 1", r.signed)
	}
}

// A flight that ends between another caller's look and its flight has signed for both: here within the look, where the clock is read.
func TestFlightThatEndedIsSeen(t *testing.T) {
	i, r, now := setUp(t)
	during := func(look func()) { // the next reading of the clock
		i.config.Now = func() time.Time {
			i.config.Now = func() time.Time { return *now }
			look()
			return *now
		}
	}
	leaf(t, i, "a", "api.test")
	*now = began.Add(Lifetime - renewBefore + time.Second)
	var between *tls.Certificate
	during(func() { between = leaf(t, i, "a", "api.test") })
	if leaf(t, i, "a", "api.test") != between {
		t.Error("a leaf was signed twice")
	}
	*now = now.Add(Lifetime - renewBefore + time.Second)
	during(func() { leaf(t, i, "a", "second.test") })
	leaf(t, i, "a", "third.test")
	if r.signed != 3 {
		t.Errorf("control signed %d intermediates, want one per lifetime: 3", r.signed)
	}
}

func TestClientAcceptsTheChain(t *testing.T) {
	i, r, now := setUp(t)
	*now = time.Now()
	for org := range r.orgs {
		r.orgs[org], _ = NewRoot("org "+org, *now, *now)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(r.orgs["a"].PEM())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return i.Leaf(h.Context(), "a", h.ServerName)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); c.(*tls.Conn).Handshake() }()
		}
	}()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", l.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "api.test"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestRootComesBackOutOfTheStore(t *testing.T) {
	_, r, now := setUp(t)
	key, err := r.orgs["a"].MarshalKey()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRoot(r.orgs["b"].Certificate.Raw, key); err == nil {
		t.Fatal("a key was taken for another certificate's")
	}
	back, err := LoadRoot(r.orgs["a"].Certificate.Raw, key)
	if err != nil {
		t.Fatal(err)
	}
	r.orgs["a"] = back
	i, err := NewIssuer(IssuerConfig{Signer: r, Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(leaf(t, i, "a", "api.test"), back, "api.test", *now); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkLeaf watches what a new name costs: one P-256 key and one signature.
func BenchmarkLeaf(b *testing.B) {
	now := time.Now()
	root, err := NewRoot("bench", now, now)
	if err != nil {
		b.Fatal(err)
	}
	i, err := NewIssuer(IssuerConfig{Signer: &roots{orgs: map[string]*Root{"a": root}, now: time.Now}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := i.sign(b.Context(), leafKey{org: "a", host: "api.test"}); err != nil {
			b.Fatal(err)
		}
	}
}
