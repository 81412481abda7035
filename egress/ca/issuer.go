package ca

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
)

// renewBefore is how long before its end an intermediate or a leaf is replaced.
const renewBefore = 2 * time.Hour

// A Signer gets an intermediate for the edge's key from the root of an org; control fits. It returns the intermediate and
// then the root, in DER.
type Signer interface {
	Intermediate(ctx context.Context, org string, key *ecdsa.PublicKey) (chain [][]byte, err error)
}

// IssuerConfig of an Issuer.
type IssuerConfig struct {
	Signer Signer
	Leaves int              // kept, of all orgs; default 4096
	Now    func() time.Time // by which certificates end; default time.Now
	Shown  func() time.Time // the clock of those to whom leaves are shown, the machine's; default Now
	// Mark returns what stands for the authority of an org as it is now: an intermediate got under another mark signs no more.
	// It is called for each leaf and must not block. Default: one mark for all time.
	Mark func(org string) string
}

// An Issuer signs leaves. It is safe for concurrent use.
type Issuer struct {
	config IssuerConfig
	leaves *lru.Cache[leafKey, *tls.Certificate]
	flight singleflight.Group

	mu   sync.Mutex
	orgs map[string]*intermediate
}

type leafKey struct{ org, mark, host string }

type intermediate struct {
	mark        string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	chain       [][]byte
}

// NewIssuer returns an Issuer without any intermediate.
func NewIssuer(c IssuerConfig) (*Issuer, error) {
	if c.Leaves == 0 {
		c.Leaves = 4096
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Shown == nil {
		c.Shown = c.Now
	}
	if c.Mark == nil {
		c.Mark = func(string) string { return "" }
	}
	leaves, err := lru.New[leafKey, *tls.Certificate](c.Leaves)
	if err != nil {
		return nil, fmt.Errorf("issuer configuration: %w", err)
	}
	return &Issuer{config: c, leaves: leaves, orgs: make(map[string]*intermediate)}, nil
}

// Leaf returns a certificate for host, a name in normal form, under the authority of org.
func (i *Issuer) Leaf(ctx context.Context, org, host string) (*tls.Certificate, error) {
	k := leafKey{org, i.config.Mark(org), host}
	if leaf := i.kept(k); leaf != nil {
		return leaf, nil
	}
	// Whoever comes first signs for all; its going away must not fail the others.
	v, err, _ := i.flight.Do("leaf "+org+" "+k.mark+" "+host, func() (any, error) {
		if leaf := i.kept(k); leaf != nil { // another flight ended since the look
			return leaf, nil
		}
		leaf, err := i.sign(context.WithoutCancel(ctx), k)
		if err == nil {
			i.leaves.Add(k, leaf)
		}
		return leaf, err
	})
	if err != nil {
		return nil, fmt.Errorf("certificate for %q: %w", host, err)
	}
	return v.(*tls.Certificate), nil
}

// kept returns the leaf of k, or nil where there is none that lasts.
func (i *Issuer) kept(k leafKey) *tls.Certificate {
	if leaf, ok := i.leaves.Get(k); ok && i.fresh(leaf.Leaf) {
		return leaf
	}
	return nil
}

// fresh reports whether a certificate lasts, and has begun: the machine's clock may have been set back since, or right.
func (i *Issuer) fresh(c *x509.Certificate) bool {
	return i.config.Now().Add(renewBefore).Before(c.NotAfter) && !i.config.Shown().Before(c.NotBefore)
}

func (i *Issuer) sign(ctx context.Context, k leafKey) (*tls.Certificate, error) {
	host := k.host
	by, err := i.intermediate(ctx, k.org, k.mark)
	if err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	cert, err := sign(&x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName(host)}, DNSNames: []string{host},
		NotBefore: by.certificate.NotBefore, NotAfter: by.certificate.NotAfter,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		CRLDistributionPoints: []string{listURL(by.certificate)},
	}, by.certificate, &key.PublicKey, by.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: append([][]byte{cert.Raw}, by.chain...), PrivateKey: key, Leaf: cert}, nil
}

// commonName is empty where the host is longer than X.520 lets a common name be; clients read the DNS names.
func commonName(host string) string {
	if len(host) > 64 {
		return ""
	}
	return host
}

// intermediate returns the one got under mark. What was got under another one is of no use any more, also where control can't be
// asked for the next.
func (i *Issuer) intermediate(ctx context.Context, org, mark string) (*intermediate, error) {
	by := i.got(org, mark)
	if by != nil && i.fresh(by.certificate) {
		return by, nil
	}
	v, err, _ := i.flight.Do("intermediate "+org+" "+mark, func() (any, error) {
		if by := i.got(org, mark); by != nil && i.fresh(by.certificate) { // another flight ended since the look
			return by, nil
		}
		return i.fetch(ctx, org, mark)
	})
	if err != nil {
		if by != nil && i.config.Now().Before(by.certificate.NotAfter) {
			return by, nil // near its end, but control can't be asked now
		}
		return nil, err
	}
	return v.(*intermediate), nil
}

// got returns what org got under mark, also where it is near its end, or nil.
func (i *Issuer) got(org, mark string) *intermediate {
	i.mu.Lock()
	defer i.mu.Unlock()
	if by := i.orgs[org]; by != nil && by.mark == mark {
		return by
	}
	return nil
}

func (i *Issuer) fetch(ctx context.Context, org, mark string) (*intermediate, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	chain, err := i.config.Signer.Intermediate(ctx, org, &key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("getting an intermediate: %w", err)
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("getting an intermediate: the chain is empty")
	}
	cert, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, fmt.Errorf("getting an intermediate: %w", err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("getting an intermediate: it is for another key")
	}
	by := &intermediate{mark, cert, key, chain[:1]}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.orgs[org] = by
	return by, nil
}
