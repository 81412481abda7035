// Package self answers http://portreeve.internal: what a sandbox may ask about itself.
//
//	h, err := self.New(self.Config{Binding: proxy.BindingOf, Policies: holder, Floor: holder.Floor, Denials: denials, Control: control})
//	proxy.Config{Self: h, SelfAddr: names.Self()}
//
// GET / lists the routes. Who asks is known by the wire: the binding of its address at accept, never anything that it says. The
// proxy lets nothing through to here but clear HTTP on port 80, under the host's own name, with the header X-Portreeve-Self: 1. Lists of revoked certificates alone, which are public and which
// programs ask for that know no such header, need none.
//
// Requests here are counted, not recorded as decisions: nothing leaves, and a sandbox that polls would use up its org's share of
// the spool, with which its real traffic would end. What changes something, an ask or a pause, is an audited change whose
// principal is the sandbox.
//
// # Security invariants
//
//   - ES-1: who asks is the binding of the connection; what the request says about it counts for nothing (TestCallerIsKnownByTheWire).
//   - ES-2: a sandbox sees its own denials and decisions only, also under an address that another had before (TestOnlyOwnDenialsAreSeen).
//   - ES-3: what is asked too often, too large or too long at a time is refused, per sandbox (TestAskingIsBounded).
//   - ES-4: no answer holds a secret, a grant's place or a policy's name, sets a cookie or lets another origin in (TestAnswersSayNamesOnly).
//   - ES-5: a verdict told here is the evaluator's own, under the snapshot in force (TestCheckIsTheEvaluators).
//   - ES-6: what was refused again and again is told with how often and until when, as the record has it (TestRepeatedDenialsAreTold).
//
// # Not here
//
// The header, the name and the port: egress/proxy (EP-18). Whether access may be asked for, who decides, and that a sandbox never
// does: gateway/api, behind Control.
//
// # Failure
//
// Without a fresh policy reach and check answer 503. Without control asks, states and pauses answer 503, the rest goes on; what
// was denied before this process began is asked of control.
package self
