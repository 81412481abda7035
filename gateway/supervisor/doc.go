// Package supervisor starts the processes of one machine, brings them together and starts them again.
//
// A Supervisor knows five roles (node, edge, inward, control, ingress). It starts each with the rights that the role
// needs, makes a socket pair for each two that talk, and after a death starts the role again with a growing pause:
//
//	s, err := supervisor.New(supervisor.Config{…})
//	err = s.Run(ctx) // returns when ctx ends and everything is stopped
//
// # Security invariants
//
//   - SV-1: a listener of a process that is gone is closed everywhere, so that connects are refused (TestListenerOfADeadProcessRefuses).
//   - SV-2: edge, inward, control and ingress run without capabilities, under a uid of their own, with no_new_privs (TestProcessesHaveOnlyTheirRights in e2e).
//   - SV-5: a listener for the edge was made in the edge's name, so that the wall around the edge's uid holds for it, whatever is made of it (TestDoorListenerIsTheEdges).
//   - SV-4: a link that breaks between two living processes is made again (TestLivingProcessesAreLinkedAgain).
//   - SV-6: a run goes on from the time that the last one had come to, also where the machine's clock was set back meanwhile (TestRunGoesOnFromTheLast).
//   - SV-7: node, edge, control and ingress have the line of the run, also one that is started again (TestProcessesHaveOneClock).
//   - SV-3: a second supervisor can't take a state directory that is in use (TestStateDirectoryHasOneOwner).
//
// # Not here
//
// What the roles do (gateway/agent, gateway/server). The supervisor parses no byte of a sandbox or of the internet: only
// its own configuration and what its children say over their sockets.
//
// # Failure
//
// With the supervisor gone its children end; sandboxes keep running in a box without a way out, and the next start
// adopts (serve) or removes (dev) them.
package supervisor
