// Package guest speaks with portreeve-init, process 1 of a sandbox, and believes nothing that it says.
//
// Three parties use it. The inward process has one Session per sandbox: Serve accepts what init dials, Open asks for a
// stream, Relay for a connection to a loopback port. It joins operations of control by ServeOperation, which decodes,
// checks and re-encodes each frame both ways. Control has a Client on top of one connection to inward per operation:
//
//	session := guest.NewSession(guest.Config{Sandbox: id, Log: log})
//	go session.Serve(ctx, listener)                    // inward: the listener was handed in
//	guest.ServeOperation(ctx, conn, session)           // inward: one end of a socket pair
//	client := guest.NewClient(dial)                    // control: dial returns the other end
//	process, err := client.Exec(ctx, guest.Exec{Argv: []string{"make"}, Stdout: w, Stderr: w})
//	exit, err := process.Wait()
//
// # Security invariants
//
//   - GU-6: a connection carries an operation only if it shows the number and token of an Open that waits, and only once (TestStreamNeedsItsToken).
//   - GU-7: a frame of init's that is malformed, out of order, over a window or a bound ends its stream and is never passed on (TestOperationRefusesHostileFrames).
//   - GU-8: a hostile init holds at most Limits.Pending unknown connections and Limits.Streams known ones; more wait in its own queue (TestFloodHoldsOnlyItsOwn).
//   - GU-9: a process whose caller is gone is cancelled in the sandbox (TestCallerGoneCancels).
//   - GU-11: after Limits.Strikes breaches of the protocol a session ends, and no other one does (TestGarbageEndsOwnSession).
//
// # Not here
//
// What came out of a sandbox is the sandbox's word: exit codes, output, file names and error texts are never audit facts.
// Who may run an operation is decided before; a relay is only for ingress, so ServeOperation refuses it.
//
// # Failure
//
// No init: operations fail at once with ErrUnavailable, and Ready says when one is back. A paused sandbox looks like a slow one:
// a new stream fails with ErrTimeout after Limits.Open, a running exec goes on after the resume.
package guest
