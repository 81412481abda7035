package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// ListLifetime is how long a list of revoked certificates is good, from its signing on. A client may keep it for as long.
const ListLifetime = 12 * time.Hour

// ErrNoList is that nobody here signs the list that was asked for.
var ErrNoList = errors.New("no such list of revoked certificates")

// A Revocation takes a certificate back before its end.
type Revocation struct {
	Serial *big.Int
	Time   time.Time
}

// ListPath is where the list of the certificates that a key took back is served, in DER: id is that key's identifier, in hexadecimal
// (RFC 5280, section 5).
func ListPath(id string) string { return "/ca/" + id + ".crl" }

// listURL is that place as certificates name it. It is clear HTTP, as a client that checks must be able to get it before it trusts
// anybody, and a sandbox reaches it whatever its policy says.
func listURL(by *x509.Certificate) string {
	return "http://portreeve.internal" + ListPath(hex.EncodeToString(by.SubjectKeyId))
}

// List signs the list of the intermediates that were taken back, in DER.
func (r *Root) List(revoked []Revocation, now time.Time) ([]byte, error) {
	return signList(r.Certificate, r.key, revoked, now)
}

// List signs the list of an edge's own intermediate, whose identifier is id. It is empty: a leaf lives for as long as its
// intermediate, which is what is taken back. ErrNoList when the intermediate is not, or no more, the org's.
func (i *Issuer) List(org, id string) ([]byte, error) {
	i.mu.Lock()
	by := i.orgs[org]
	i.mu.Unlock()
	if by == nil || hex.EncodeToString(by.certificate.SubjectKeyId) != id {
		return nil, ErrNoList
	}
	return signList(by.certificate, by.key, nil, i.config.Now())
}

func signList(by *x509.Certificate, key crypto.Signer, revoked []Revocation, now time.Time) ([]byte, error) {
	t := &x509.RevocationList{
		Number:     big.NewInt(now.UnixMicro()), // grows with each list
		ThisUpdate: now.Add(-Backdate), NextUpdate: now.Add(ListLifetime),
	}
	for _, r := range revoked {
		t.RevokedCertificateEntries = append(t.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: r.Serial, RevocationTime: r.Time})
	}
	der, err := x509.CreateRevocationList(rand.Reader, t, by, key)
	if err != nil {
		return nil, fmt.Errorf("signing the list of %q: %w", by.Subject.CommonName, err)
	}
	return der, nil
}
