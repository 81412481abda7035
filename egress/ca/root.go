package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// How long certificates live, from the time on by which they end. Each begins Backdate before the time by which it begins, for sandboxes
// whose clock is behind.
const (
	RootLifetime = 5 * 365 * 24 * time.Hour
	Lifetime     = 24 * time.Hour
	Backdate     = time.Hour
)

// A Root is the authority of one org.
type Root struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewRoot makes the authority of the org that name describes. It begins by the clock that says from, and ends by the one that says now:
// they differ while the machine's clock, which clients go by, is behind or ahead.
func NewRoot(name string, from, now time.Time) (*Root, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	t, err := authority(name, from, now.Add(RootLifetime), 1, &key.PublicKey)
	if err != nil {
		return nil, err
	}
	cert, err := sign(t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making the authority of %q: %w", name, err)
	}
	return &Root{cert, key}, nil
}

// LoadRoot is a Root out of a store: its certificate in DER, and its key as MarshalKey returned it.
func LoadRoot(certificate, key []byte) (*Root, error) {
	cert, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, fmt.Errorf("reading an authority: %w", err)
	}
	private, err := x509.ParseECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("reading the key of %q: %w", cert.Subject.CommonName, err)
	}
	if !private.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("reading the key of %q: it belongs to another certificate", cert.Subject.CommonName)
	}
	return &Root{cert, private}, nil
}

// Describe reads of a root's certificate, in DER, what may be shown of it: its identifier as of Root.ID, its name and its end.
func Describe(certificate []byte) (id, name string, ends time.Time, err error) {
	cert, err := x509.ParseCertificate(certificate)
	if err != nil {
		return "", "", time.Time{}, fmt.Errorf("reading an authority: %w", err)
	}
	return hex.EncodeToString(cert.SubjectKeyId), cert.Subject.CommonName, cert.NotAfter, nil
}

// MarshalKey returns the key for sealing. It is secret.
func (r *Root) MarshalKey() ([]byte, error) { return x509.MarshalECPrivateKey(r.key) }

// PEM is the root's certificate as sandboxes trust it.
func (r *Root) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate.Raw})
}

// ID tells the root from all others: its key's identifier, in hexadecimal.
func (r *Root) ID() string { return hex.EncodeToString(r.Certificate.SubjectKeyId) }

// Intermediate signs an edge's key for Lifetime; from and now as of NewRoot.
func (r *Root) Intermediate(key *ecdsa.PublicKey, from, now time.Time) (*x509.Certificate, error) {
	if key == nil || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("signing an intermediate of %q: its key is not on P-256", r.Certificate.Subject.CommonName)
	}
	t, err := authority(r.Certificate.Subject.CommonName+" edge", from, now.Add(Lifetime), 0, key)
	if err != nil {
		return nil, err
	}
	t.CRLDistributionPoints = []string{listURL(r.Certificate)}
	return sign(t, r.Certificate, key, r.key)
}

func authority(name string, from, end time.Time, below int, key *ecdsa.PublicKey) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{"Portreeve"}},
		NotBefore: from.Add(-Backdate), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: below, MaxPathLenZero: below == 0,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: keyID(key),
	}, nil
}

// keyID is one of the methods of RFC 7093.
func keyID(key *ecdsa.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil // x509 then chooses
	}
	sum := sha256.Sum256(der)
	return sum[:20]
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// newSerial draws 127 random bits: RFC 5280 wants at most 20 octets and a positive number.
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func sign(t, parent *x509.Certificate, key *ecdsa.PublicKey, by crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
