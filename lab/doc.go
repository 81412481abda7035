// Package lab builds a small internet for tests, and watches it.
//
// A lab is two network namespaces with names of their own. In the gateway namespace the product runs; its only way
// out is a link into the net namespace, which holds an authoritative name server, HTTPS servers under a lab CA, plain
// services, and evil.test, which nobody may reach and which writes down whoever does. Neither namespace has a way to
// the machine's own network, so nothing that a test sends can leave the machine.
//
//	l := lab.Start(t, lab.Options{})
//	p := l.StartProduct(t, lab.ProductOptions{})
//	out := p.CLI("run", "--", "wget", "-qO-", "https://api.test/")
//	if err := l.Capture.Quiet(l.Evil.Addr); err != nil { t.Error(err) }
//
// The judge is the capture on that link: it sees every frame, says so when it lost one, and proves with a frame of its
// own that it was looking when a test asks whether something was silent.
//
// It needs root, /dev/net/tun not, and imports nothing else of ours: the judge shares no code with the judged.
//
// # Security invariants
//
//   - LA-1: a silence is only vouched for by a capture that was looking and lost nothing (TestQuietIsNoGuess, TestQuietSeesOnePacket).
//
// # Not here
//
// Sandboxes' insides: the tests in e2e drive the product's binaries for that.
//
// # Failure
//
// What can't be built is an error that names it; Close removes both namespaces, also after half a start.
package lab
