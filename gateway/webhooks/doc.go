// Package webhooks tells an org's own endpoints of events, in the form of Standard Webhooks.
//
//	s, err := webhooks.New(webhooks.Config{Queue: store, Dial: dial, Secrets: open, Roots: roots})
//	err = s.Run(ctx)                        // delivers what is queued
//	outcome := s.Attempt(ctx, delivery)     // one try, now
//
// An event is queued in the change that it tells of, and sent at least once: a receiver tells repetitions by the webhook-id. Each
// request carries webhook-id, webhook-timestamp and webhook-signature: v1, and the base64 of the HMAC-SHA256 over
// "id.timestamp.body" by the endpoint's secret; one signature for each secret that is active. An answer of 2xx ends it; anything
// else is tried again, each time four times as late, until the endpoint's retries are used up.
//
// # Security invariants
//
//   - WH-1: every connection is made by Config.Dial for the endpoint's org and the host of its URL, at each try anew; nothing else is dialled (TestOnlyTheDialerConnects).
//   - WH-2: a redirect is an answer and not followed (TestRedirectsAreNotFollowed).
//   - WH-3: what is sent is signed by the endpoint's own secrets, over id, time and body (TestSignatureIsOverAllOfIt).
//   - WH-4: a receiver that is slow, silent or talks without end holds a try no longer than its time and costs no memory (TestSlowAndEndlessAnswersEnd).
//   - WH-5: what was not delivered is tried again, and given up only when its tries are over (TestTriedUntilDelivered).
//   - WH-6: one org's endpoints don't hold up another's (TestSlowOrgHoldsNobodyElse).
//   - WH-7: only https is spoken, and only with who proves the name (TestReceiverMustProveItsName).
//
// # Not here
//
// The floor under every connection: the Dial that is given, which is egress/dial's. Who may name endpoints: gateway/api. Keeping and
// sealing: gateway/internal/store, secrets/seal.
//
// # Failure
//
// With the store gone nothing is sent, and what was being sent comes again. A receiver that is away for longer than its tries has
// missed what was given up: the store lists it for a week.
package webhooks
