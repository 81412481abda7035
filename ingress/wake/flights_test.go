package wake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A sleeper wakes after a while, or fails.
type sleeper struct {
	mu     sync.Mutex
	takes  time.Duration
	err    error
	calls  []string
	cancel int // calls whose context ended
}

func (s *sleeper) Wake(ctx context.Context, sandbox string, from uint64) (uint64, error) {
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprint(sandbox, "@", from))
	takes, err := s.takes, s.err
	s.mu.Unlock()
	select {
	case <-time.After(takes):
		return from + 1, err
	case <-ctx.Done():
		s.mu.Lock()
		s.cancel++
		s.mu.Unlock()
		return 0, ctx.Err()
	}
}

func (s *sleeper) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

func (s *sleeper) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func start(t *testing.T, s *sleeper, change ...func(*Config)) *Flights {
	t.Helper()
	c := Config{Waker: s}
	for _, f := range change {
		f(&c)
	}
	f, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestManyCallersAreOneWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{takes: time.Second}
		f := start(t, s)
		defer f.Close()
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond) // the last half comes after it woke, with an old route
				if g, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_1", From: 4}); g != 5 || err != nil {
					t.Errorf("caller %d: %d, %v", i, g, err)
				}
			})
		}
		wg.Wait()
		if n := s.count(); n != 1 {
			t.Errorf("200 callers made %d wakes", n)
		}
		if f.WokenAt("sbx_1", 5).IsZero() || !f.WokenAt("sbx_1", 4).IsZero() {
			t.Error("when it woke is not known")
		}
		if g, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_1", From: 5}); g != 6 || err != nil || s.count() != 2 {
			t.Errorf("asleep again: %d, %v after %d wakes", g, err, s.count())
		}
		if g, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_2", From: 1}); g != 2 || err != nil || s.count() != 3 {
			t.Errorf("another sandbox: %d, %v after %d wakes", g, err, s.count())
		}
	})
}

func TestCallersMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{takes: 40 * time.Second}
		f := start(t, s)
		defer f.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.Wait(ctx, Call{Org: "org_1", Sandbox: "sbx_1", From: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("left: %v", err)
		}
		if _, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_1", From: 1}); !errors.Is(err, ErrBudget) {
			t.Errorf("held too long: %v", err)
		}
		if g, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_1", From: 1}); g != 2 || err != nil || s.count() != 1 || s.cancel != 0 {
			t.Errorf("%d, %v after %d wakes", g, err, s.count())
		}
		if f.parked != 0 || len(f.orgs) != 0 {
			t.Errorf("%d callers, %d orgs are left", f.parked, len(f.orgs))
		}
	})
}

func TestParkingIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		org    func(i int) string
		box    func(i int) string
	}{
		"per sandbox": {func(c *Config) { c.PerSandbox = 5 }, func(i int) string { return fmt.Sprint(i) }, func(int) string { return "sbx_1" }},
		"per org":     {func(c *Config) { c.PerOrg = 5 }, func(int) string { return "org_1" }, func(i int) string { return fmt.Sprint(i) }},
		"in all":      {func(c *Config) { c.Total, c.PerOrg = 5, 100 }, func(i int) string { return fmt.Sprint(i) }, func(i int) string { return fmt.Sprint(i) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &sleeper{takes: time.Second}
			f := start(t, s, test.change)
			defer f.Close()
			var mu sync.Mutex
			var wg sync.WaitGroup
			full, served := 0, 0
			for i := range 20 {
				wg.Go(func() {
					began := time.Now()
					_, err := f.Wait(t.Context(), Call{Org: test.org(i), Sandbox: test.box(i), From: 1})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						served++
					case errors.Is(err, ErrFull) && time.Since(began) == 0:
						full++
					default:
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if served != 5 || full != 15 {
				t.Errorf("%s: %d served, %d refused", name, served, full)
			}
			if _, err := f.Wait(t.Context(), Call{Org: test.org(0), Sandbox: test.box(0), From: 1}); err != nil {
				t.Errorf("%s: afterwards: %v", name, err)
			}
		})
	}
}

func TestFailedWakeBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no memory")
		s := &sleeper{err: broken}
		f := start(t, s)
		defer f.Close()
		var failed *FailedError
		for i, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			if _, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_1", From: 1}); !errors.As(err, &failed) || !errors.Is(err, broken) {
				t.Fatal(err)
			}
			if failed.RetryAfter != pause*time.Second {
				t.Errorf("failure %d: again after %v", i, failed.RetryAfter)
			}
			time.Sleep(pause*time.Second - 1)
			if err := f.Start(Call{Sandbox: "sbx_1", From: 1}); !errors.As(err, &failed) || s.count() != i+1 {
				t.Fatalf("failure %d: %v after %d wakes", i, err, s.count())
			}
			time.Sleep(time.Nanosecond)
		}
		s.fail(nil)
		if g, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_1", From: 1}); g != 2 || err != nil {
			t.Errorf("healed: %d, %v", g, err)
		}
		s.fail(broken)
		if _, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_1", From: 2}); !errors.As(err, &failed) || failed.RetryAfter != time.Second {
			t.Errorf("a new generation: %v, again after %v", err, failed.RetryAfter)
		}
		time.Sleep(time.Hour)
		if f.mu.Lock(); len(f.flights) != 0 {
			t.Errorf("%d outcomes are remembered for ever", len(f.flights))
		}
		f.mu.Unlock()
	})
}

func TestCloseEndsFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{takes: time.Hour}
		f := start(t, s)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_1", From: 1}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		f.Close()
		wg.Wait()
		if err := f.Start(Call{Sandbox: "sbx_1", From: 1}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

func TestOlderGenerationIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, &sleeper{})
		f.cfg.Waker = wakerFunc(func(_ context.Context, _ string, from uint64) (uint64, error) { return from, nil })
		defer f.Close()
		if g, err := f.Wait(t.Context(), Call{Org: "org_1", Sandbox: "sbx_1", From: 3}); err == nil {
			t.Errorf("woken into generation %d", g)
		}
	})
}

type wakerFunc func(context.Context, string, uint64) (uint64, error)

func (w wakerFunc) Wake(ctx context.Context, sandbox string, from uint64) (uint64, error) {
	return w(ctx, sandbox, from)
}

// Wakes by callers without a credential are counted, by org: those that cause one, not those that join it.
func TestAnonymousWakesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{takes: time.Second}
		f := start(t, s)
		defer f.Close()
		call := func(org, sandbox string, from uint64, anonymous bool) error {
			t.Helper()
			c := Call{Org: org, Sandbox: sandbox, From: from, Anonymous: anonymous, PerMinute: 2}
			if err := f.Start(c); err != nil {
				return err
			}
			_, err := f.Wait(t.Context(), c)
			return err
		}
		for i, sandbox := range []string{"sbx_1", "sbx_2"} {
			if err := call("org_1", sandbox, 1, true); err != nil {
				t.Errorf("wake %d: %v", i+1, err)
			}
		}
		var spent *SpentError
		if err := call("org_1", "sbx_3", 1, true); !errors.As(err, &spent) || spent.Never || spent.RetryAfter < 25*time.Second || spent.RetryAfter > 30*time.Second {
			t.Fatalf("the third of two: %v, %+v", err, spent)
		}
		if err := call("org_1", "sbx_3", 1, false); err != nil {
			t.Errorf("with a credential: %v", err)
		}
		if err := call("org_1", "sbx_3", 1, true); err != nil {
			t.Errorf("who finds it woken: %v", err)
		}
		if err := call("org_2", "sbx_4", 1, true); err != nil {
			t.Errorf("of another org: %v", err)
		}
		time.Sleep(spent.RetryAfter)
		if err := call("org_1", "sbx_5", 1, true); err != nil {
			t.Errorf("when it was told to come back: %v", err)
		}
		if err := f.Start(Call{Org: "org_1", Sandbox: "sbx_6", From: 1, Anonymous: true}); !errors.As(err, &spent) || !spent.Never {
			t.Errorf("where none may: %v", err)
		}
		// One sandbox that is called and put to sleep again leaves three quarters of the org's to the others.
		for from := range uint64(3) {
			c := Call{Org: "org_3", Sandbox: "sbx_7", From: from, Anonymous: true, PerMinute: 8}
			_, err := f.Wait(t.Context(), c)
			if want := from < 2; want != (err == nil) {
				t.Errorf("wake %d of one sandbox: %v", from+1, err)
			}
		}
		if err := call("org_3", "sbx_8", 1, true); err != nil {
			t.Errorf("another of the org: %v", err)
		}
		if n := s.count(); n != 8 {
			t.Errorf("%d wakes, want 8: %v", n, s.calls)
		}
	})
}
