package decisions

import (
	"fmt"
	"time"
)

// Config of a Spool. The zero value is usable.
type Config struct {
	MaxBytes  int64            // rows not yet acknowledged, in bytes; default 256 MiB. Full = every Record fails
	OrgShare  float64          // how much of MaxBytes one org may hold, 0 < share ≤ 1; default 0.25
	Rate      float64          // decisions per second of one sandbox, over time; default 200
	Burst     int              // decisions of one sandbox at once; default 2000
	FoldAfter int              // equal denials of a sandbox in a minute that get a row each; more of them are counted in one; default 10
	PowerSafe bool             // fsync each commit; default off: safe against a crash of the process, not of the machine
	Late      bool             // open even if the file can't be: every Record fails until it can
	Now       func() time.Time // default time.Now
}

// closingReserve is what closing rows may use beyond MaxBytes and beyond an org's share: their connections were already
// allowed, so refusing them saves nothing and loses the end of a story.
const closingReserve = 0.1

func (c Config) withDefaults() (Config, error) {
	if c.MaxBytes == 0 {
		c.MaxBytes = 256 << 20
	}
	if c.OrgShare == 0 {
		c.OrgShare = 0.25
	}
	if c.Rate == 0 {
		c.Rate = 200
	}
	if c.Burst == 0 {
		c.Burst = 2000
	}
	if c.FoldAfter == 0 {
		c.FoldAfter = 10
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MaxBytes < 0 || c.OrgShare < 0 || c.OrgShare > 1 || c.Rate < 0 || c.Burst < 0 || c.FoldAfter < 0 {
		return c, fmt.Errorf("spool configuration: max_bytes, rate, burst and fold_after are positive, org_share is between 0 and 1")
	}
	return c, nil
}
