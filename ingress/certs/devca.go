package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"

	"portreeve.dev/policies/hostname"
)

// How long certificates live. Browsers refuse leaves of more than 398 days, also of an authority of one's own.
const (
	authorityLifetime = 5 * 365 * 24 * time.Hour
	leafLifetime      = 30 * 24 * time.Hour
	renewBefore       = 5 * 24 * time.Hour
	backdate          = time.Hour
)

// A DevCA signs for one domain, on one machine.
type DevCA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

var _ Issuer = (*DevCA)(nil)

// NewDevCA makes an authority for the tunnel domain. Domains under localhost share the constraint localhost, so that one
// authority can serve whatever runs on the machine.
func NewDevCA(domain string, now time.Time) (*DevCA, error) {
	domain, err := hostname.Normalize(domain)
	if err != nil {
		return nil, fmt.Errorf("making the development authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	constraint := domain
	if strings.HasSuffix(domain, ".localhost") {
		constraint = "localhost"
	}
	t := &x509.Certificate{
		SerialNumber: newSerial(), Subject: pkix.Name{CommonName: "Portreeve development CA, " + constraint + " only"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLifetime),
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{constraint},
		ExcludedIPRanges: []*net.IPNet{everything(net.IPv4len), everything(net.IPv6len)}, // permitted names alone say nothing of addresses
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making the development authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the development authority: %w", err)
	}
	return &DevCA{certificate, key}, nil
}

func everything(size int) *net.IPNet {
	return &net.IPNet{IP: make(net.IP, size), Mask: make(net.IPMask, size)}
}

// LoadDevCA is a DevCA out of a store: its certificate and its key in DER.
func LoadDevCA(certificate, key []byte) (*DevCA, error) {
	c, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, fmt.Errorf("reading the development authority: %w", err)
	}
	k, err := x509.ParseECPrivateKey(key)
	if err != nil {
		return nil, errors.New("reading the key of the development authority: not an EC key")
	}
	if !k.PublicKey.Equal(c.PublicKey) {
		return nil, errors.New("reading the key of the development authority: it belongs to another certificate")
	}
	if !c.IsCA || !c.PermittedDNSDomainsCritical || len(c.PermittedDNSDomains) == 0 {
		return nil, errors.New("reading the development authority: it is not confined to a domain")
	}
	return &DevCA{c, k}, nil
}

// Certificate returns the authority's certificate in DER.
func (ca *DevCA) Certificate() []byte { return bytes.Clone(ca.certificate.Raw) }

// PEM returns the authority's certificate, to be trusted by clients.
func (ca *DevCA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.certificate.Raw})
}

// MarshalKey returns the key for LoadDevCA. It is secret.
func (ca *DevCA) MarshalKey() ([]byte, error) { return x509.MarshalECPrivateKey(ca.key) }

// Issue signs a leaf for one host, with a key of its own.
func (ca *DevCA) Issue(host string, from, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	end := now.Add(leafLifetime)
	if end.After(ca.certificate.NotAfter) {
		end = ca.certificate.NotAfter
	}
	t := &x509.Certificate{
		SerialNumber: newSerial(), DNSNames: []string{host}, NotBefore: from.Add(-backdate), NotAfter: end,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca.certificate, &key.PublicKey, ca.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, ca.certificate.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func newSerial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	b[15] |= 1
	return new(big.Int).SetBytes(b[:])
}
