// Package limits is what an org may use of the egress, as the platform sets it, as the org lowers it, and as it then holds.
//
//	now := platform.Lowered(own) // field by field, the lower one
//
// # Security invariants
//
//   - LM-1: an org lowers the platform's limits and never raises one (TestOwnLimitsOnlyLower).
//
// # Not here
//
// Holding them: egress/flows. Keeping an org's own: gateway/internal/store. Routes: gateway/api.
//
// # Failure
//
// None: it only computes.
package limits
