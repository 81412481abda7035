package proxy

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

// followed is what is found in b, read in pieces of that size.
func followed(b []byte, piece int) (all []frame) {
	var s frames
	for part := range slices.Chunk(b, piece) {
		s.follow(part, func(f frame) { all = append(all, f) })
	}
	return all
}

// twin is what another reader finds.
func twin(b []byte) (all []frame, whole bool) {
	framer := http2.NewFramer(io.Discard, bytes.NewReader(b))
	framer.SetMaxReadFrameSize(1<<24 - 1)
	framer.AllowIllegalReads = true
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return all, errors.Is(err, io.EOF)
		}
		h := f.Header()
		one := frame{kind: byte(h.Type), flags: byte(h.Flags), stream: h.StreamID}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			one.code = uint32(f.ErrCode)
		case *http2.GoAwayFrame:
			one.code = uint32(f.ErrCode)
		}
		all = append(all, one)
	}
}

func someFrames() []byte {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("fields"), PadLength: 3, Priority: http2.PriorityParam{StreamDep: 3}})
	_ = f.WriteContinuation(1, true, nil)
	_ = f.WriteData(1, true, bytes.Repeat([]byte{0, 0, 4, 3}, 99))
	_ = f.WriteRSTStream(1, http2.ErrCodeProtocol)
	_ = f.WritePing(false, [8]byte{1})
	_ = f.WriteRSTStream(1<<31-1, http2.ErrCodeHTTP11Required)
	_ = f.WriteGoAway(7, http2.ErrCodeCompression, []byte("because"))
	_ = f.WriteSettingsAck()
	_ = f.WriteWindowUpdate(0, 1)
	return b.Bytes()
}

func TestFramesAreFoundInPieces(t *testing.T) {
	b := someFrames()
	want, whole := twin(b)
	if len(want) != 10 || !whole {
		t.Fatalf("the twin finds %+v", want)
	}
	for piece := 1; piece <= len(b); piece++ {
		if got := followed(b, piece); !slices.Equal(got, want) {
			t.Errorf("in pieces of %d: %+v, want %+v", piece, got, want)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(someFrames(), 3)
	f.Add([]byte("\x00\x00\x02\x03\x00\x00\x00\x00\x01ab\x00\x00\x09\x07\x00\x00\x00\x00\x00123456789"), 1)
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		whole := followed(b, len(b)+1)
		if got := followed(b, max(1, piece)); !slices.Equal(got, whole) {
			t.Errorf("in pieces of %d: %+v, want %+v", piece, got, whole)
		}
		want, all := twin(b) // which waits for the body of the last
		if len(whole) < len(want) || !slices.Equal(whole[:len(want)], want) || all && len(whole) > len(want)+1 {
			t.Errorf("%+v, want %+v", whole, want)
		}
	})
}
