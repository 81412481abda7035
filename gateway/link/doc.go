// Package link carries typed messages and open files between the processes of one machine.
//
// The supervisor makes a socket pair for each two processes that talk and hands each its end; after that it is out of
// their way. A Conn carries calls in both directions at once:
//
//	mux := link.NewMux()
//	link.Handle(mux, "unbind", func(ctx context.Context, in Binding) (struct{}, error) { … })
//	link.HandleFiles(mux, "bind", func(ctx context.Context, in Binding, files []*os.File) (struct{}, []*os.File, error) { … })
//	conn := link.NewConn(socket, mux, link.Limits{})
//	go conn.Run(ctx)
//	err := conn.Call(ctx, "unbind", in, &out)
//
// # Security invariants
//
//   - LK-1: a frame over the limit ends the connection before its body is read (TestFrameOverTheLimitEndsTheConnection).
//   - LK-2: a file that a handler did not ask for is closed, and never kept (TestUnaskedFilesAreClosed).
//   - LK-4: a peer that doesn't read is given up (TestPeerThatDoesNotReadIsGivenUp).
//   - LK-3: unknown fields and unknown methods are refused (TestUnknownFieldAndMethodAreRefused).
//
// # Not here
//
// Who may say what: each process registers only the methods that its peer may call.
//
// # Failure
//
// When the peer is gone every waiting call fails with ErrClosed; the supervisor brings a new link.
package link
