package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/egress/ca"
	"portreeve.dev/gateway/authorities"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// newAuthorities joins the orgs' authorities with the node and the feeds.
func (c *control) newAuthorities() (*authorities.Service, error) {
	return authorities.New(authorities.Config{Store: c.store, Keyring: c.keyring, Node: truster{&c.node.Peer}, Now: c.now, Earliest: c.earliest, Log: c.log,
		Publish: func(context.Context, int64) {
			if c.publisher != nil { // its feed is not there before the store is
				c.publisher.Publish()
			}
		}})
}

// truster is the node as the authorities know it.
type truster struct{ node *link.Peer }

// trustLimit is how long a node may take to write to its sandboxes.
const trustLimit = 10 * time.Second

func (t truster) Trust(ctx context.Context, org string, pem []byte) error {
	conn := t.node.Now()
	if conn == nil {
		return link.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, trustLimit)
	defer cancel()
	return conn.Call(ctx, role.NodeTrust, role.OrgTrust{Org: org, Roots: pem}, nil)
}

// stepEvery is how often the authorities look at what is due.
const stepEvery = time.Second

// stepAuthorities rotates what is due.
func (c *control) stepAuthorities(ctx context.Context) {
	c.every(ctx, stepEvery, "authorities of orgs", c.authorities.Step)
}

// signIntermediate signs an edge's own key under the authority of an org, or under that of the doors.
func (c *control) signIntermediate(ctx context.Context, in role.IntermediateRequest) (role.Intermediate, error) {
	parsed, err := x509.ParsePKIXPublicKey(in.Key)
	if err != nil {
		return role.Intermediate{}, fmt.Errorf("reading the edge's key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		return role.Intermediate{}, errors.New("the edge's key is none of ECDSA")
	}
	if in.Org != role.DoorAuthority {
		chain, err := c.authorities.Sign(ctx, in.Org, key)
		return role.Intermediate{Chain: chain}, err
	}
	root, err := c.doorAuthority(ctx)
	if err != nil {
		return role.Intermediate{}, err
	}
	cert, err := root.Intermediate(key, c.earliest(), c.now())
	if err != nil {
		return role.Intermediate{}, err
	}
	return role.Intermediate{Chain: [][]byte{cert.Raw, root.Certificate.Raw}}, nil
}

// revokedOf answers a sandbox that asks for the list of a root of its org.
func (c *control) revokedOf(ctx context.Context, in role.RevokedQuery) (role.Revoked, error) {
	if err := c.isOf(ctx, in.AboutSandbox); err != nil {
		return role.Revoked{}, err
	}
	list, err := c.authorities.List(ctx, in.Org, in.ID)
	if errors.Is(err, ca.ErrNoList) {
		err = &link.Error{Code: role.CodeNoList, Message: "there is no such list"}
	}
	return role.Revoked{List: list}, err
}
