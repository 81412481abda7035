package frame

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestReaderRefusesBeforeAllocating(t *testing.T) {
	for name, c := range map[string]struct {
		head  [headerLen]byte
		limit int
	}{
		"no type":                  {[headerLen]byte{0, 0, 0, 0}, MaxPayload},
		"unknown type":             {[headerLen]byte{200, 0, 0, 1}, MaxPayload},
		"longest length":           {[headerLen]byte{byte(Data), 0xff, 0xff, 0xff}, MaxPayload},
		"just over the cap":        {[headerLen]byte{byte(Data), 1, 0, 1}, MaxPayload},
		"over the cap of its type": {[headerLen]byte{byte(Hello), 0, 0x02, 1}, MaxPayload},
		"over the limit of now":    {[headerLen]byte{byte(Data), 0, 0x02, 1}, MaxOpening},
		"a payload where none is":  {[headerLen]byte{byte(End), 0, 0, 1}, MaxPayload},
	} {
		r := NewReader(bytes.NewReader(c.head[:]))
		if _, _, err := r.Next(c.limit); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
		if cap(r.buf) != 0 {
			t.Errorf("%s: %d bytes were allocated", name, cap(r.buf))
		}
	}
	r := NewReader(bytes.NewReader(append([]byte{byte(Data), 1, 0, 0}, make([]byte, MaxPayload)...)))
	if _, payload, err := r.Next(MaxPayload); err != nil || len(payload) != MaxPayload {
		t.Errorf("the largest frame: %d, %v", len(payload), err)
	}
}

func TestEndsAreTold(t *testing.T) {
	var whole bytes.Buffer
	NewWriter(&whole).Send(Stdout, []byte("abc"))
	for n := range whole.Len() + 1 {
		r := NewReader(bytes.NewReader(whole.Bytes()[:n]))
		_, _, err := r.Next(MaxPayload)
		want := io.ErrUnexpectedEOF
		switch n {
		case 0:
			want = io.EOF
		case whole.Len():
			want = nil
		}
		if err != want {
			t.Errorf("%d of %d bytes: %v, want %v", n, whole.Len(), err, want)
		}
	}
}

func TestWriterKeepsCaps(t *testing.T) {
	for i := range kinds {
		typ := Type(i)
		if kinds[i].name == "" {
			if err := NewWriter(io.Discard).Send(typ, nil); !errors.Is(err, ErrFormat) {
				t.Errorf("%s was sent", typ)
			}
			continue
		}
		var out bytes.Buffer
		w := NewWriter(&out)
		if err := w.Send(typ, make([]byte, kinds[i].max+1)); !errors.Is(err, ErrFormat) || out.Len() != 0 {
			t.Errorf("%s over its cap: %v", typ, err)
		}
		if err := w.Send(typ, make([]byte, kinds[i].max)); err != nil {
			t.Errorf("%s at its cap: %v", typ, err)
		}
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for name, payload := range map[string]string{
		"empty": "", "null": "null", "an unknown field": `{"pid":1,"x":1}`, "bytes after": `{"pid":1} {}`, "another type": `{"pid":"1"}`,
		"a list": `[1]`, "zero": `{"pid":0}`, "too large": `{"pid":4194305}`, "a fraction": `{"pid":1.5}`, "deep": strings.Repeat("[", 60000),
	} {
		if m, err := Decode[StartedMessage]([]byte(payload)); !errors.Is(err, ErrFormat) || m != (StartedMessage{}) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if m, err := Decode[StartedMessage]([]byte(` {"pid":4194304} `)); err != nil || m.PID != 1<<22 {
		t.Errorf("in bounds: %+v, %v", m, err)
	}
}

func TestBounds(t *testing.T) {
	id := strings.Repeat("a", 32)
	good := []Message{
		HelloMessage{1, 1, id}, OpenMessage{1, id}, StartedMessage{1}, SignalMessage{64}, CreditMessage{StdinWindow}, ExitMessage{Code: 255},
		ExitMessage{Code: 137, Signal: 9}, PongMessage{}, NewError(CodeInternal, "x"), Size{1, 4096}, ExecMessage{Argv: []string{"x", ""}},
		ReadMessage{"/x", MaxFile}, WriteMessage{Path: "x", Mode: 0o777}, PathMessage{strings.Repeat("x", maxPath)}, DeleteMessage{Path: "x"}, RelayMessage{65535},
		InfoMessage{Name: "x", Kind: KindFile}, EntriesMessage{{Name: "x", Kind: KindDir}},
	}
	bad := []Message{
		HelloMessage{0, 1, id}, HelloMessage{1, 1, id[1:]}, HelloMessage{1, 1, strings.Repeat("G", 32)}, OpenMessage{0, id}, OpenMessage{1, ""}, StartedMessage{0},
		SignalMessage{0}, SignalMessage{65}, CreditMessage{0}, CreditMessage{StdinWindow + 1}, CreditMessage{-1}, ExitMessage{Code: 256}, ExitMessage{Code: -1},
		ExitMessage{Code: 9, Signal: 9}, PongMessage{Processes: -1}, ErrorMessage{"made_up", ""}, ErrorMessage{CodeInternal, "a\x1b[31m"}, ErrorMessage{CodeInternal, strings.Repeat("x", maxText+1)},
		Size{0, 1}, Size{1, 4097}, ExecMessage{}, ExecMessage{Argv: []string{""}}, ExecMessage{Argv: []string{"a\x00"}}, ExecMessage{Argv: []string{"a"}, Env: map[string]string{"": "x"}},
		ExecMessage{Argv: []string{"a"}, Env: map[string]string{"a=b": "x"}}, ExecMessage{Argv: []string{"a"}, Env: map[string]string{"a": "\x00"}}, ExecMessage{Argv: []string{"a"}, TTY: &Size{}},
		ExecMessage{Argv: []string{"a"}, TimeoutMS: -1}, ExecMessage{Argv: []string{"a"}, Cwd: "\x00"}, ReadMessage{"", 1}, ReadMessage{"x", -1}, ReadMessage{"x", MaxFile + 1},
		WriteMessage{Path: "x", Mode: 0o4755}, PathMessage{strings.Repeat("x", maxPath+1)}, DeleteMessage{Path: "\x00"}, RelayMessage{},
		InfoMessage{Name: "", Kind: KindFile}, InfoMessage{Name: "a/b", Kind: KindFile}, InfoMessage{Name: "x", Kind: "door"}, InfoMessage{Name: "x", Kind: KindFile, Size: -1}, EntriesMessage{},
		make(EntriesMessage, EntriesPerFrame+1),
	}
	for _, m := range good {
		if _, err := Encode(m); err != nil {
			t.Errorf("%#v: %v", m, err)
		}
	}
	for _, m := range bad {
		if _, err := Encode(m); !errors.Is(err, ErrFormat) {
			t.Errorf("%#v passes: %v", m, err)
		}
	}
}

func TestErrorTextFits(t *testing.T) {
	for _, text := range []string{"plain", "", strings.Repeat("ü", 400), "a\x00\nb\xff", strings.Repeat("x", 5000)} {
		if err := NewError(CodeInternal, text).Check(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if m := NewError(CodeInternal, "a\nb"); m.Message != "a b" {
		t.Errorf("%q", m.Message)
	}
}

func TestLargestListingFits(t *testing.T) {
	var entries EntriesMessage
	for range EntriesPerFrame {
		entries = append(entries, InfoMessage{Name: strings.Repeat("\xff", 255), Kind: KindSymlink, Size: 1 << 62, Mode: 0o777, Modified: -1 << 53})
	}
	payload, err := json.Marshal(entries)
	if err != nil || len(payload) > MaxPayload {
		t.Errorf("%d bytes, %v", len(payload), err)
	}
}

func TestOperations(t *testing.T) {
	for _, op := range []Operation{
		{OpExec, ExecMessage{Argv: []string{"a"}, TTY: &Size{1, 2}}}, {OpRead, ReadMessage{"x", 1}}, {OpWrite, WriteMessage{Path: "x"}}, {OpList, PathMessage{"x"}},
		{OpStat, PathMessage{"x"}}, {OpDelete, DeleteMessage{Path: "x"}}, {OpRelay, RelayMessage{1}}, {OpPing, nil},
	} {
		var out bytes.Buffer
		if err := op.Send(NewWriter(&out)); err != nil {
			t.Fatal(err)
		}
		typ, payload, err := NewReader(&out).Next(MaxPayload)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeOperation(typ, payload)
		if err != nil || got.Type != op.Type {
			t.Errorf("%s: %+v, %v", op.Type, got, err)
		}
	}
	if _, err := DecodeOperation(Stdout, []byte("{}")); !errors.Is(err, ErrFormat) {
		t.Errorf("stdout as an operation: %v", err)
	}
}

// FuzzFrame: what is read can be written again, byte for byte, and nothing over a cap is read.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{byte(Data), 0, 0, 2, 'a', 'b', byte(End), 0, 0, 0})
	f.Add([]byte{byte(OpExec), 0, 0, 14, '{', '"', 'a', 'r', 'g', 'v', '"', ':', '[', '"', 'x', '"', ']', '}'})
	f.Add([]byte{byte(Stdout), 1, 0, 1})
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		var out bytes.Buffer
		w := NewWriter(&out)
		for {
			typ, payload, err := r.Next(MaxPayload)
			if err != nil {
				break
			}
			if len(payload) > kinds[typ].max || cap(r.buf) > MaxPayload {
				t.Fatalf("%s of %d bytes", typ, len(payload))
			}
			if err := w.Send(typ, payload); err != nil {
				t.Fatal(err)
			}
			op, err := DecodeOperation(typ, payload)
			if err != nil {
				continue
			}
			var once, twice bytes.Buffer
			if err := op.Send(NewWriter(&once)); errors.Is(err, ErrFormat) {
				continue // escaping made it longer than its cap
			}
			again, err := DecodeOperation(typ, once.Bytes()[headerLen:])
			if err != nil {
				t.Fatalf("its own encoding is refused: %v", err)
			}
			if err := again.Send(NewWriter(&twice)); err != nil || !bytes.Equal(once.Bytes(), twice.Bytes()) {
				t.Fatalf("two encodings of one message: %v\n%q\n%q", err, once.Bytes(), twice.Bytes())
			}
		}
		if !bytes.HasPrefix(data, out.Bytes()) {
			t.Fatal("written bytes differ from the read ones")
		}
	})
}

// Cost watched: one copy per frame and no allocation.
func BenchmarkFrames(b *testing.B) {
	payload := make([]byte, 32<<10)
	var pipe bytes.Buffer
	w, r := NewWriter(&pipe), NewReader(&pipe)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		pipe.Reset()
		if err := w.Send(Stdout, payload); err != nil {
			b.Fatal(err)
		}
		if _, _, err := r.Next(MaxPayload); err != nil {
			b.Fatal(err)
		}
	}
}
