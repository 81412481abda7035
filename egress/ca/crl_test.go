package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestListIsItsSignersOwn(t *testing.T) {
	i, r, now := setUp(t)
	c := leaf(t, i, "a", "api.test")
	mid, err := x509.ParseCertificate(c.Certificate[1])
	if err != nil {
		t.Fatal(err)
	}
	root := r.orgs["a"]
	if got, want := mid.CRLDistributionPoints, []string{"http://portreeve.internal" + ListPath(root.ID())}; len(got) != 1 || got[0] != want[0] {
		t.Errorf("the intermediate's list is at %v, want %v", got, want)
	}
	id := hex.EncodeToString(mid.SubjectKeyId)
	if got := c.Leaf.CRLDistributionPoints; len(got) != 1 || got[0] != "http://portreeve.internal"+ListPath(id) {
		t.Errorf("the leaf's list is at %v", got)
	}
	of, err := root.List([]Revocation{{mid.SerialNumber, *now}}, *now)
	if err != nil {
		t.Fatal(err)
	}
	own, err := i.List("a", id)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]struct {
		der    []byte
		by     *x509.Certificate
		other  *x509.Certificate
		listed int
	}{
		"the root's":         {of, root.Certificate, r.orgs["b"].Certificate, 1},
		"the intermediate's": {own, mid, root.Certificate, 0},
	} {
		list, err := x509.ParseRevocationList(l.der)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := list.CheckSignatureFrom(l.by); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if list.CheckSignatureFrom(l.other) == nil {
			t.Errorf("%s: another's signature is as good", name)
		}
		if n := len(list.RevokedCertificateEntries); n != l.listed || n == 1 && list.RevokedCertificateEntries[0].SerialNumber.Cmp(mid.SerialNumber) != 0 {
			t.Errorf("%s: %v", name, list.RevokedCertificateEntries)
		}
		if list.ThisUpdate.After(*now) || !list.NextUpdate.After(*now) || list.NextUpdate.Sub(*now) > ListLifetime {
			t.Errorf("%s: from %v to %v", name, list.ThisUpdate, list.NextUpdate)
		}
	}
	*now = now.Add(time.Second)
	later, err := root.List(nil, *now)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := x509.ParseRevocationList(of)
	second, err := x509.ParseRevocationList(later)
	if err != nil || second.Number.Cmp(first.Number) <= 0 {
		t.Errorf("the numbers are %v and then %v (%v)", first.Number, second.Number, err)
	}
	for name, ask := range map[string][2]string{"another org's": {"b", id}, "another key's": {"a", root.ID()}, "nobody's": {"c", ""}} {
		if _, err := i.List(ask[0], ask[1]); !errors.Is(err, ErrNoList) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpenSSLChecksAgainstTheLists: a program that asks for a list of each certificate of the chain accepts ours, and refuses what
// is on one.
func TestOpenSSLChecksAgainstTheLists(t *testing.T) {
	i, r, now := setUp(t)
	*now = time.Now()
	root, err := NewRoot("org a", *now, *now)
	if err != nil {
		t.Fatal(err)
	}
	r.orgs["a"] = root
	c := leaf(t, i, "a", "api.test")
	mid, _ := x509.ParseCertificate(c.Certificate[1])
	own, err := i.List("a", hex.EncodeToString(mid.SubjectKeyId))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, blocks ...*pem.Block) string {
		var all bytes.Buffer
		for _, b := range blocks {
			pem.Encode(&all, b)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, all.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert := func(der []byte) *pem.Block { return &pem.Block{Type: "CERTIFICATE", Bytes: der} }
	verify := func(revoked []Revocation) (string, error) {
		of, err := root.List(revoked, *now)
		if err != nil {
			t.Fatal(err)
		}
		lists := write("lists", &pem.Block{Type: "X509 CRL", Bytes: of}, &pem.Block{Type: "X509 CRL", Bytes: own})
		out, err := exec.Command("openssl", "verify", "-x509_strict", "-crl_check_all", "-CRLfile", lists, "-verify_hostname", "api.test",
			"-CAfile", write("root", cert(root.Certificate.Raw)), "-untrusted", write("mid", cert(mid.Raw)), write("leaf", cert(c.Leaf.Raw))).CombinedOutput()
		return string(out), err
	}
	if out, err := verify(nil); err != nil {
		t.Errorf("nothing is revoked: %v: %s", err, out)
	}
	if out, err := verify([]Revocation{{mid.SerialNumber, now.Add(-time.Minute)}}); err == nil || !strings.Contains(out, "certificate revoked") {
		t.Errorf("the intermediate is revoked: %v: %s", err, out)
	}
}

// TestMarkEndsAnIntermediate: what was got under another mark signs no more, whether control is there or not.
func TestMarkEndsAnIntermediate(t *testing.T) {
	_, r, now := setUp(t)
	mark := map[string]string{"a": "1", "b": "1"}
	i, err := NewIssuer(IssuerConfig{Signer: r, Now: func() time.Time { return *now }, Mark: func(org string) string { return mark[org] }})
	if err != nil {
		t.Fatal(err)
	}
	first, other := leaf(t, i, "a", "api.test"), leaf(t, i, "b", "api.test")
	if leaf(t, i, "a", "api.test") != first {
		t.Error("under the same mark it is another")
	}
	mark["a"] = "2"
	r.fail = errors.New("control is gone")
	if _, err := i.Leaf(t.Context(), "a", "api.test"); !errors.Is(err, r.fail) {
		t.Errorf("under a new mark, without control: %v", err)
	}
	if leaf(t, i, "b", "api.test") != other {
		t.Error("another org's is another")
	}
	r.fail = nil
	next, err := NewRoot("next", *now, *now)
	if err != nil {
		t.Fatal(err)
	}
	old := r.orgs["a"]
	r.orgs["a"] = next
	c := leaf(t, i, "a", "api.test")
	if verify(c, next, "api.test", *now) != nil || verify(c, old, "api.test", *now) == nil {
		t.Error("under a new mark the old root signs on")
	}
}
