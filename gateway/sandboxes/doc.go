// Package sandboxes takes a sandbox through its life: create, pause, resume, extend, end.
//
// The store says what is meant to be, the node does it. A create is a row and a revision first, then the feed's word that
// every edge knows the revision, and only then a command to the node:
//
//	svc, err := sandboxes.New(sandboxes.Config{Store: st, Runner: node, Guest: guest, Feed: feed})
//	err = svc.Reconcile(ctx)                        // after each start
//	b, err := svc.Create(ctx, by, sandboxes.Order{...})
//	err = svc.HandleEvent(ctx, sandboxes.Event{...}) // what the node reports
//
// # Security invariants
//
//   - SB-1: the node is told to start a sandbox only after every edge has acknowledged the revision that names it (TestNoStartBeforeTheEdgesKnow).
//   - SB-2: a create that failed leaves a row in error and no sandbox on the node (TestFailedCreateLeavesNothing).
//   - SB-3: an event about an older incarnation than the stored one changes nothing (TestStaleEventChangesNothing).
//   - SB-4: another org's sandbox is not found, whatever is asked of it (TestAnotherOrgsSandboxIsNotFound).
//   - SB-5: a sandbox on the node without a live row is deleted (TestReconcileDeletesOrphans).
//   - SB-6: what a row says of sleep is what the node says, not what an event or an older row does (TestLateWordOfAWakeIsNotBelieved).
//   - SB-8: an attached sandbox ends when its time is up, though no node watches over it (TestOverdueAttachedEnds).
//   - SB-9: an attached sandbox that is told to end, or has ended, is none to the edges any more (TestAttachedNeedsNoNode, TestOverdueAttachedEnds).
//   - SB-7: each change of a row is made known at once, so that ingress follows it (TestEachChangeIsPublished).
//
// # Not here
//
// Scopes and the form of requests: gateway/api. What runs in a sandbox: the guest, through gateway/api.
//
// # Failure
//
// With the node gone, create ends in error "node_unavailable" and delete stays at terminating until Reconcile; with an edge
// silent, create ends in error "policy_not_applied". With the store gone nothing is begun.
package sandboxes
