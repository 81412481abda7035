package storetest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// Open opens a fresh, empty store that is closed at the end of t.
type Open func(t *testing.T, opt store.Options) *store.Store

// Run runs the whole contract, or the tests that are named.
func Run(t *testing.T, open Open, only ...string) {
	for name, test := range map[string]func(*testing.T, Open){
		"ChangeNeedsAPrincipal":        changeNeedsAPrincipal,
		"ChangeNeedsAnAuditEntry":      changeNeedsAnAuditEntry,
		"EntryAndChangeGoTogether":     entryAndChangeGoTogether,
		"OrgsDontMeet":                 orgsDontMeet,
		"StaleVersionChangesNothing":   staleVersionChangesNothing,
		"RevisionsAreCommitOrdered":    revisionsAreCommitOrdered,
		"DecisionAppendIsIdempotent":   decisionAppendIsIdempotent,
		"SetupTokenWorksOnce":          setupTokenWorksOnce,
		"ParallelChangesKeepTheChain":  parallelChangesKeepTheChain,
		"TimesComeBackInUTC":           timesComeBackInUTC,
		"DecisionsAreListedByCursor":   decisionsAreListedByCursor,
		"DecisionsAreFollowed":         decisionsAreFollowed,
		"TailSeesEachEndOnce":          tailSeesEachEndOnce,
		"LossIsWhatIsMissing":          lossIsWhatIsMissing,
		"OldestDecisionsGoFirst":       oldestDecisionsGoFirst,
		"DeadFlowsAreEnded":            deadFlowsAreEnded,
		"DecisionSettingsAreKept":      decisionSettingsAreKept,
		"PolicyVersionsAreKept":        policyVersionsAreKept,
		"PoliciesAreBounded":           policiesAreBounded,
		"PoliciesAreCounted":           policiesAreCounted,
		"UsedPolicyIsNotDeleted":       usedPolicyIsNotDeleted,
		"KeysAreKept":                  keysAreKept,
		"SandboxesAreKept":             sandboxesAreKept,
		"SandboxLimitHoldsInParallel":  sandboxLimitHoldsInParallel,
		"IdempotencyKeysAreClaimed":    idempotencyKeysAreClaimed,
		"FeedStateIsOneSnapshot":       feedStateIsOneSnapshot,
		"CancelledChangeChangesNought": cancelledChange,

		"SecretsAreKept":                 secretsAreKept,
		"SecretVersionsFollowEachOther":  secretVersionsFollowEachOther,
		"SecretsAreInTheFeed":            secretsAreInTheFeed,
		"FirstKeyStays":                  firstKeyStays,
		"RootsChangeInOrder":             rootsChangeInOrder,
		"IntermediatesAreKept":           intermediatesAreKept,
		"TunnelsAreKept":                 tunnelsAreKept,
		"PublicSandboxesAreFound":        publicSandboxesAreFound,
		"TunnelLimitHoldsInParallel":     tunnelLimitHoldsInParallel,
		"LimitsAreKept":                  limitsAreKept,
		"IngressPolicyIsKept":            ingressPolicyIsKept,
		"RestrictionsHoldForWhatReturns": restrictionsHoldForWhatComesBack,
		"UsageIsCountedOnce":             usageIsCountedOnce,
		"QuotaIsNotedOnce":               quotaIsNotedOnce,
		"RoutesSayWhatTheSandboxIs":      routesSayWhatTheSandboxIs,
		"OwnListsAreKept":                ownListsAreKept,
		"OwnListsAreBounded":             ownListsAreBounded,
		"SandboxesChangeTheirPolicy":     sandboxesChangeTheirPolicy,
		"VersionsAreListed":              versionsAreListed,
		"OldVersionsAreForgotten":        oldVersionsAreForgotten,
		"FloorExemptionsAreKept":         floorExemptionsAreKept,
		"FloorLimitHoldsInParallel":      floorLimitHoldsInParallel,
		"DoorKeysAreRotated":             doorKeysAreRotated,
		"AttachedSandboxesEnd":           attachedSandboxesEnd,
		"SecretsAreBounded":              secretsAreBounded,
		"RequestsAreKept":                requestsAreKept,
		"WebhooksAreKept":                webhooksAreKept,
		"RequestLimitsHoldInParallel":    requestLimitsHoldInParallel,
	} {
		if len(only) == 0 || slices.Contains(only, name) {
			t.Run(name, func(t *testing.T) { test(t, open) })
		}
	}
}

// A World is a store with orgs in it.
type World struct {
	*store.Store
	t *testing.T
}

// NewWorld opens a store.
func NewWorld(t *testing.T, open Open, opt store.Options) World {
	t.Helper()
	opt.Create = true
	return World{open(t, opt), t}
}

// Org registers an org and returns a principal within it.
func (w World) Org(slug string) store.By {
	w.t.Helper()
	setup := sso.Principal{Kind: sso.KindSetup, ID: "setup", Org: store.NewID("org")}
	_, err := w.Change(ctx(w.t), store.By{Principal: setup}, func(tx *store.Tx) error {
		if _, err := tx.CreateOrg(ctx(w.t), slug, slug); err != nil {
			return err
		}
		return tx.Record(ctx(w.t), audit.OrgRegister, setup.Org, nil)
	})
	w.must(err)
	return store.By{Principal: sso.Principal{Kind: sso.KindKey, ID: "key_of_" + slug, Org: setup.Org, Scopes: sso.Scopes()}, Address: "192.0.2.1", RequestID: "req_1"}
}

// Policy stores a document and returns the revision.
func (w World) Policy(by store.By, name, doc string, expected int64) (store.Policy, int64, error) {
	var p store.Policy
	rev, err := w.Change(ctx(w.t), by, func(tx *store.Tx) (err error) {
		if p, err = tx.PutPolicy(ctx(w.t), name, json.RawMessage(doc), expected); err != nil {
			return err
		}
		tx.Bump()
		return tx.Record(ctx(w.t), audit.PolicyUpdate, "policy:"+name, nil)
	})
	return p, rev, err
}

// Sandbox enters a running sandbox.
func (w World) Sandbox(by store.By, policy string) store.Sandbox {
	w.t.Helper()
	var b store.Sandbox
	_, err := w.Change(ctx(w.t), by, func(tx *store.Tx) (err error) {
		b, err = tx.CreateSandbox(ctx(w.t), store.Sandbox{ID: store.NewID("sbx"), Status: store.Running, Policy: policy,
			Spec: store.SandboxSpec{CPUs: "2", Env: map[string]string{"A": "b"}}, ExpiresAt: tx.Now().Add(time.Hour)}, 0)
		if err != nil {
			return err
		}
		return tx.Record(ctx(w.t), audit.SandboxCreate, b.ID, nil)
	})
	w.must(err)
	return b
}

func (w World) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// chain verifies the whole audit log of an org and returns it.
func (w World) chain(org string) []audit.Entry {
	w.t.Helper()
	all, err := w.AuditChain(ctx(w.t), org, 1, 10_000)
	w.must(err)
	if err := audit.Verify(audit.Genesis(org), all); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func decision(by store.By, host string, at time.Time) decisions.Decision {
	return decisions.Decision{ID: store.NewID("dec"), Time: at, Org: by.Principal.Org, Sandbox: "sbx_1", Layer: "connect", Verdict: "deny", Reason: "no_rule", Host: host, Port: 443}
}

func ctx(t *testing.T) context.Context { return t.Context() }

// together runs n functions at once and returns their errors.
func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wait.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wait.Wait()
	return errs
}
