package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// Ingress is the life of the process.
func Ingress(ctx context.Context) error {
	return child.Run(ctx, child.Spec{
		Start: startIngress,
		Siblings: map[string]*child.Sibling{
			"control": {Mux: link.NewMux()},
			"inward":  {Mux: link.NewMux()},
		},
	})
}

func startIngress(ctx context.Context, raw json.RawMessage, files []*os.File) (any, []*os.File, error) {
	var start role.IngressStart
	if err := json.Unmarshal(raw, &start); err != nil {
		return nil, nil, err
	}
	if len(files) != 1 {
		return nil, nil, errors.New("ingress takes one listener")
	}
	listener, err := net.FileListener(files[0])
	files[0].Close()
	if err != nil {
		return nil, nil, fmt.Errorf("taking the listener of the tunnels: %w", err)
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go refuseAll(listener)
	return struct{}{}, nil, nil
}

// refuseAll answers as a server of names that all do not exist: there are no tunnels yet.
func refuseAll(l net.Listener) {
	alert := []byte{21, 3, 3, 0, 2, 2, 112} // unrecognized_name, RFC 6066
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Write(alert)
		c.Close()
	}
}
