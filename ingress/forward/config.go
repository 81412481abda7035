package forward

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"portreeve.dev/ingress/route"
	"portreeve.dev/ingress/streams"
)

// What a Dialer says, and what Forward returns, for errors.Is.
var (
	// ErrStale: the sandbox does not run in this generation. Nothing was sent.
	ErrStale = errors.New("the sandbox is not in this generation")
	// ErrPortClosed: the sandbox runs, but nothing listens there.
	ErrPortClosed = errors.New("nothing listens on the port")
	// ErrBadAnswer: the app's answer can't be understood, or never came.
	ErrBadAnswer = errors.New("no proper answer from the app")
	// ErrAborted: the answer had begun and can't be finished. The client's connection has to be cut.
	ErrAborted = errors.New("the answer was cut off")
)

// A Dialer makes connections to sandboxes; gateway fills it in.
type Dialer interface {
	// Dial connects to rec.Port of rec.Sandbox, if that runs in rec.Generation, else it returns ErrStale. It returns
	// ErrPortClosed when the connection is refused there, on the sandbox's address and on its loopback. The connection ends
	// with the generation. Other fields of rec are not for choosing where to.
	Dial(ctx context.Context, rec *route.Record) (net.Conn, error)
}

// Config of a Forwarder.
type Config struct {
	Dialer      Dialer
	PortBudget  time.Duration // how long a port may take to open after a wake; default 5 s
	DialTimeout time.Duration // of one dial; default 5 s
	IdleTimeout time.Duration // of a connection that may be used again; default 4 s, below what servers have
	IdlePerKey  int           // of those, per tunnel and generation; default 16
	IdleTotal   int           // default 2048
}

// A Hop is where a request goes, and what is known of whom it comes from.
type Hop struct {
	Record     *route.Record
	Generation uint64     // to be dialled; after a wake the record's is older
	Client     netip.Addr // as it connected to us
	Authority  string     // host, and port if any, as the client knows the tunnel
	Secure     bool       // it came over TLS
	Woken      time.Time  // when the sandbox was woken, if lately: its port may open later
	Stream     *streams.Stream
	Waited     time.Duration // for a wake; told to the client
	Body       io.Reader     // instead of the request's body, which may have been read ahead
	// Upgrade takes the client's connection over from the server; nil refuses upgrades.
	Upgrade func(http.ResponseWriter) (net.Conn, *bufio.Reader, error)
}

// A Forwarder forwards requests. It is safe for concurrent use.
type Forwarder struct {
	cfg  Config
	pool *pool
}

// New returns a Forwarder without any connection.
func New(c Config) (*Forwarder, error) {
	if c.Dialer == nil {
		return nil, errors.New("forward: no Dialer")
	}
	for v, d := range map[*time.Duration]time.Duration{&c.PortBudget: 5 * time.Second, &c.DialTimeout: 5 * time.Second, &c.IdleTimeout: 4 * time.Second} {
		if *v == 0 {
			*v = d
		}
	}
	if c.IdlePerKey == 0 {
		c.IdlePerKey = 16
	}
	if c.IdleTotal == 0 {
		c.IdleTotal = 2048
	}
	return &Forwarder{cfg: c, pool: newPool(c)}, nil
}

// Retire closes idle connections of a tunnel to generations up to the given one.
func (f *Forwarder) Retire(tunnel string, generation uint64) { f.pool.retire(tunnel, generation) }

// Close closes all idle connections and keeps none from now on.
func (f *Forwarder) Close() { f.pool.close() }
