package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"portreeve.dev/gateway/canary"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/nodes/guest/frame"
)

// What the canary's sandbox may use, and how much its probe may print.
const (
	canaryMemory    = 128 << 20
	canaryWorkspace = 16 << 20
	canaryOutput    = 256 << 10
	probeProgram    = "/.portreeve/probe"
)

// newCanary makes it, if the configuration wants one. Its sandbox is in no store: it belongs to nobody, and the node alone
// knows it. So a control that dies leaves one behind, until it is brought together with the node.
func (c *control) newCanary() (*canary.Canary, error) {
	if c.setup.Canary == 0 {
		return nil, nil
	}
	run := runner{&c.node.Peer, trustNobody{}}
	guest := guests{&c.inward.Peer}
	return canary.New(canary.Config{
		Every: c.setup.Canary, Now: c.now, Log: c.log, Settle: c.settle,
		Start: func(ctx context.Context) error {
			if err := run.Delete(ctx, canary.Sandbox); err != nil {
				return err
			}
			_, err := run.Create(ctx, sandboxes.Spec{ID: canary.Sandbox, Org: canary.Org, Template: "tiny", MilliCPU: 500,
				MemoryBytes: canaryMemory, WorkspaceBytes: canaryWorkspace, End: c.now().Add(2 * time.Minute)})
			if err != nil {
				return err
			}
			return guest.Ready(ctx, canary.Sandbox)
		},
		Try:    func(ctx context.Context) ([]canary.Attempt, error) { return probeSmall(ctx, guest) },
		Remove: func(ctx context.Context) error { return run.Delete(ctx, canary.Sandbox) },
	})
}

// watchDenial runs the canary once an edge knows its policy.
func (c *control) watchDenial(ctx context.Context) {
	if err := c.publisher.WaitApplied(ctx, 1); err == nil {
		c.canary.Run(ctx)
	}
}

// denial is what the API says of it.
func (c *control) denial() (canary.Proof, bool) {
	if c.canary == nil {
		return canary.Proof{}, false
	}
	return c.canary.Proof(), true
}

// probeSmall runs the probe's short list. Each line is one attempt.
func probeSmall(ctx context.Context, guest guests) ([]canary.Attempt, error) {
	p, err := guest.Exec(ctx, canary.Sandbox, frame.ExecMessage{Argv: []string{probeProgram, "-small"}, TimeoutMS: 30_000})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var out bytes.Buffer
	for {
		piece, err := p.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if !piece.Stderr && out.Len()+len(piece.Data) <= canaryOutput {
			out.Write(piece.Data)
		}
	}
	var all []canary.Attempt
	for line := range bytes.Lines(out.Bytes()) {
		var a canary.Attempt
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, fmt.Errorf("reading the probe's words: %w", err)
		}
		all = append(all, a)
	}
	return all, nil
}
