package guest

import (
	"io"
	"log/slog"
	"time"
)

// Limits bounds what one sandbox may hold on the host.
type Limits struct {
	Pending int           // connections that have not said what they are; default 32
	Streams int           // open streams, those being opened included; default 200, below init's own 256
	Strikes int           // breaches of the protocol until the session ends for good; default 32
	Accepts int           // connections accepted per second after a burst of as many; default 1000
	Opening time.Duration // for the first frame of a connection; default 5 s
	Open    time.Duration // for init to dial back for a stream; default 10 s
	Answer  time.Duration // for the next frame of a file operation and for each write to init; default 30 s
}

func (l Limits) withDefaults() Limits {
	number := func(v *int, normal int) {
		if *v <= 0 {
			*v = normal
		}
	}
	duration := func(v *time.Duration, normal time.Duration) {
		if *v <= 0 {
			*v = normal
		}
	}
	number(&l.Pending, 32)
	number(&l.Streams, 200)
	number(&l.Strikes, 32)
	number(&l.Accepts, 1000)
	duration(&l.Opening, 5*time.Second)
	duration(&l.Open, 10*time.Second)
	duration(&l.Answer, 30*time.Second)
	return l
}

// Config of a Session.
type Config struct {
	Sandbox string       // id of the sandbox, for errors and the log
	Log     *slog.Logger // default: none
	Limits  Limits       // zero fields get their defaults
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	c.Log = c.Log.With("sandbox", c.Sandbox)
	c.Limits = c.Limits.withDefaults()
	return c
}

// pace is a token bucket: it says how long the accept loop must rest. It is for one goroutine.
type pace struct {
	perSecond float64
	tokens    float64
	last      time.Time
}

func newPace(perSecond int, now time.Time) *pace {
	return &pace{perSecond: float64(perSecond), tokens: float64(perSecond), last: now}
}

// take uses one token and returns how long it takes until it is there.
func (p *pace) take(now time.Time) time.Duration {
	p.tokens = min(p.perSecond, p.tokens+now.Sub(p.last).Seconds()*p.perSecond)
	p.last = now
	p.tokens--
	if p.tokens >= 0 {
		return 0
	}
	return time.Duration(-p.tokens / p.perSecond * float64(time.Second))
}
