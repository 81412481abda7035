package streams

// A Reason is why a stream ends before its own end.
type Reason uint8

const (
	Expired  Reason = iota + 1 // the tunnel's time is over
	Deleted                    // the tunnel was deleted
	Revoked                    // the access under which it was admitted was revoked
	Paused                     // the sandbox sleeps
	Stale                      // the sandbox lives on in another generation
	Shutdown                   // we stop
)

// Close codes of RFC 6455 that we send.
const (
	closeGoingAway = 1001
	closePolicy    = 1008
	closeRestart   = 1012
)

var reasons = [...]struct {
	code uint16
	text string
}{
	Expired:  {closeGoingAway, "tunnel expired"},
	Deleted:  {closeGoingAway, "tunnel deleted"},
	Revoked:  {closePolicy, "access revoked"},
	Paused:   {closeRestart, "sandbox paused"},
	Stale:    {closeRestart, "sandbox restarted"},
	Shutdown: {closeGoingAway, "gateway stops"},
}

// Close returns the close code and text of a WebSocket that ends for this reason.
func (r Reason) Close() (code uint16, text string) {
	if r == 0 || int(r) >= len(reasons) {
		return closeGoingAway, ""
	}
	return reasons[r].code, reasons[r].text
}

func (r Reason) Error() string { _, text := r.Close(); return text }
