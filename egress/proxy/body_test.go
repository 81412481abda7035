package proxy

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/iotest"

	"portreeve.dev/egress"
)

// A body that was read to its end has ended: what the server says of it after the answer began is not the transport's business.
func TestBodyEndsOnce(t *testing.T) {
	closed := errors.New("closed by the server")
	reads := 0
	from := readerFunc(func(p []byte) (int, error) {
		if reads++; reads == 1 {
			return copy(p, "body"), io.EOF
		}
		return 0, closed
	})
	b := &countedBody{ReadCloser: io.NopCloser(from), c: &connection{}, live: &egress.Live{}, from: &http.Request{}}
	for range 3 {
		if _, err := io.ReadAll(b); err != nil {
			t.Fatal(err)
		}
	}
	if b.live.Out.Load() != 4 {
		t.Errorf("%d bytes counted", b.live.Out.Load())
	}
	// One that broke off before is broken.
	b = &countedBody{ReadCloser: io.NopCloser(iotest.ErrReader(closed)), c: &connection{}, live: &egress.Live{}, from: &http.Request{}}
	if _, err := io.ReadAll(b); !errors.Is(err, closed) {
		t.Errorf("a broken body: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
