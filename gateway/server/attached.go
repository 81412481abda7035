package server

import (
	"context"
	"time"

	"portreeve.dev/egress/ca"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/gateway/sandboxes"
)

// attached is what an edge must know of a sandbox that somebody else runs; nil for another.
func attached(b store.SandboxPolicy) *feed.Attached {
	if !b.Attached {
		return nil
	}
	return &feed.Attached{Incarnation: b.Incarnation, Ends: b.ExpiresAt}
}

// openDoorKeys opens an org's keys for the edge. One that can't be opened opens no door.
func (c *control) openDoorKeys(list []store.DoorKey) (open []feed.DoorKey) {
	for _, k := range list {
		key, err := c.keyring.Open(api.DoorKeyRecord(k.Org, k.Version), k.Sealed)
		if err != nil {
			c.log.Error("a door key can't be opened", "org", k.Org, "err", err)
			continue
		}
		open = append(open, feed.DoorKey{Version: uint32(k.Version), Key: key})
	}
	return open
}

// sockets are the node's, one for each attached sandbox.
type sockets struct{ node *link.Peer }

var _ sandboxes.Sockets = sockets{}

func (s sockets) Open(ctx context.Context, sandbox string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var made role.DoorSocket
	err := s.node.Call(ctx, role.NodeDoorOpen, role.SandboxRef{Sandbox: sandbox}, &made)
	return made.Path, err
}

func (s sockets) Close(ctx context.Context, sandbox string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return s.node.Call(ctx, role.NodeDoorClose, role.SandboxRef{Sandbox: sandbox}, nil)
}

// overdueEvery is how late an attached sandbox may be found to be over. Its doors are shut on time: the edge looks itself.
const overdueEvery = time.Second

// endOverdue ends attached sandboxes whose time is up; those of our own a node ends.
func (c *control) endOverdue(ctx context.Context) {
	c.every(ctx, overdueEvery, "attached sandboxes whose time is up", c.sandboxes.EndOverdue)
}

// doorAuthority opens the root that signs for doors, or makes it.
func (c *control) doorAuthority(ctx context.Context) (*ca.Root, error) {
	certificate, key, err := c.platformKey(ctx, "door_authority", func() ([]byte, []byte, error) {
		root, err := ca.NewRoot("Portreeve doors", c.earliest(), c.now())
		if err != nil {
			return nil, nil, err
		}
		key, err := root.MarshalKey()
		return root.Certificate.Raw, key, err
	})
	if err != nil {
		return nil, err
	}
	return ca.LoadRoot(certificate, key)
}

// doors is what the API says of them.
func (c *control) doors() api.Doors {
	d := api.Doors{HTTP: c.setup.Doors.HTTP, SOCKS: c.setup.Doors.SOCKS, Trust: c.authorities.Trust}
	if c.setup.Doors.Own {
		d.Authority = func(ctx context.Context) ([]byte, error) {
			root, err := c.doorAuthority(ctx)
			if err != nil {
				return nil, err
			}
			return root.PEM(), nil
		}
	}
	return d
}
