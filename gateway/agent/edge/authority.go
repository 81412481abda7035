package edge

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"time"

	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// signLimit is how long control may take to sign an intermediate: a sandbox waits for it in its handshake.
const signLimit = 5 * time.Second

// authority gets intermediates from control; the key never leaves this process.
type authority struct{ control *link.Peer }

func (a authority) Intermediate(ctx context.Context, org string, key *ecdsa.PublicKey) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, signLimit)
	defer cancel()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	var signed role.Intermediate
	err = a.control.Call(ctx, role.ControlIntermediate, role.IntermediateRequest{Org: org, Key: der}, &signed)
	return signed.Chain, err
}
