// Package secrets says who may use which value where, and shapes the injected header.
//
// A Grant names the one place to which a secret may go. An Injector holds the grants and values of one org, and is asked
// for every allowed request on opened TLS:
//
//	uses, err := injector.Apply(secrets.Request{Host: "api.example.com", Port: 443, Policy: "web"}, r)
//
// On a host that any grant names it first removes every carrier of a credential that the sandbox sent, whether or not a
// grant fits this request: an allowed host is not an allowed account. And it says what to keep out of the answer (scrub.go). What a carrier is says its name (names.go); Carriers and
// RemoveCarriers do the same for whoever blocks or strips without a grant.
//
// # Security invariants
//
//   - SC-1: a value goes only to the host, port, methods, path and policies that its grant names (TestGrantFitsOrNothing).
//   - SC-2: on a granted host no credential of the sandbox's own stays in the request (TestNoForeignCredentialStays).
//   - SC-3: a value prints, marshals and logs as "redacted" (TestValuePrintsNothing).
//   - SC-4: a value that would break the header is refused when it is stored, and again when it is used (TestValueThatBreaksAHeaderIsRefused).
//   - SC-5: of a credential that a request carries only a hash under the org's own key is known (TestPrintsKnowACredentialAgainAndHideIt).
//   - SC-6: a Scrubber finds a value as it is, percent-encoded, quoted and in base64, however the answer is cut (TestAnswersAreScrubbed, TestPasswordOfBasicIsScrubbed).
//
// # Not here
//
// Whether the request may pass at all (policies), and that the upstream is verified (egress/proxy). Credentials in a path (a bot's
// token, a webhook) or in a body are not found: a rule or a grant that names the path keeps the first ones out. Neither is a
// key that is called as nothing else would be (?code=, ?appid=, ?client_id=).
//
// In answers, values under 8 bytes are not looked for, nor what was hashed, reversed, cut into pieces, or written in UTF-16 or base64 with
// line ends: scrubbing narrows reflection, it doesn't prevent it.
//
// # Failure
//
// A grant whose value is missing is an error: the request is refused, never sent without it.
package secrets
