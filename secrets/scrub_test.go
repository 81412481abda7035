package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

const tricky = `k+/"e<y&-4711 \%` // has bytes that every encoding writes differently

func scrubberOf(t testing.TB, values ...string) *Scrubber {
	t.Helper()
	var list []Secret
	for i, v := range values {
		kept, err := NewValue([]byte(v))
		if err != nil {
			t.Fatal(err)
		}
		g := Grant{Host: "api.test", Place: PlaceHeader, Header: fmt.Sprintf("X-Key-%d", i), Scrub: ScrubBodies}
		list = append(list, Secret{ID: fmt.Sprint("sec_", i), Version: 1, Value: kept, Grants: []Grant{g}})
	}
	i, err := NewInjector(list)
	if err != nil {
		t.Fatal(err)
	}
	done, err := i.Apply(right, request("GET", "https://api.test/"))
	if err != nil {
		t.Fatal(err)
	}
	return done.Scrub
}

// rendered is value as an answer may hold it.
func rendered(value string) map[string]string {
	quoted, _ := json.Marshal(value)
	return map[string]string{
		"as it is":                value,
		"percent-encoded":         url.PathEscape(value),
		"percent-encoded, lower":  lowerEscapes(url.PathEscape(value)),
		"in a query":              url.QueryEscape(value),
		"in JSON":                 string(quoted),
		"in HTML":                 html.EscapeString(value),
		"in base64":               base64.StdEncoding.EncodeToString([]byte(value)),
		"in base64 of a URL":      base64.RawURLEncoding.EncodeToString([]byte(value)),
		"in base64, behind one":   base64.StdEncoding.EncodeToString([]byte(":" + value + "!")),
		"in base64, behind two":   base64.StdEncoding.EncodeToString([]byte("u:" + value + "!!")),
		"in base64, behind three": base64.StdEncoding.EncodeToString([]byte("us:" + value)),
	}
}

// longestLeft is the longest piece of value's form that stands in text.
func longestLeft(text, form string) (n int) {
	for i := range form {
		for j := i + n + 1; j <= len(form) && strings.Contains(text, form[i:j]); j++ {
			n = j - i
		}
	}
	return n
}

func TestAnswersAreScrubbed(t *testing.T) {
	for _, value := range []string{canary, tricky} {
		s := scrubberOf(t, value)
		for name, form := range rendered(value) {
			t.Run(name, func(t *testing.T) {
				h := http.Header{"X-Echo": {"fine", "got=" + form + ";"}, "X-Other": {"got=" + strings.Repeat("-", len(form)) + ";"}}
				if !s.Header(h) || len(h["X-Echo"][1]) != len("got=;")+len(form) || longestLeft(h["X-Echo"][1], form) > 5 {
					t.Errorf("a field is %q", h["X-Echo"])
				}
				text := "{\"a\": \"" + form + "\", \"b\": \"" + form + "\"}"
				for name, r := range map[string]io.Reader{"at once": strings.NewReader(text), "by bytes": iotest.OneByteReader(strings.NewReader(text))} {
					body := s.Body(io.NopCloser(r))
					got, err := io.ReadAll(body)
					if err != nil || !body.Found() || len(got) != len(text) || longestLeft(string(got), form) > 5 || !strings.Contains(string(got), `", "b": "`) {
						t.Errorf("%s: got %q, %v", name, got, err)
					}
				}
				// The twin has one byte changed.
				other := strings.Replace(text, form[len(form)/2:], "~"+form[len(form)/2+1:], 1)
				if twin := s.Body(io.NopCloser(strings.NewReader(strings.Split(other, ", ")[0]))); true {
					if got, err := io.ReadAll(twin); err != nil || twin.Found() || string(got) != strings.Split(other, ", ")[0] {
						t.Errorf("the twin became %q, %v", got, err)
					}
				}
			})
		}
	}
}

// A grant for user and password keeps the password too.
func TestPasswordOfBasicIsScrubbed(t *testing.T) {
	const password = "pass-word-4711"
	pair := base64.StdEncoding.EncodeToString([]byte("user:" + password))
	for template, found := range map[string]bool{"Basic {value}": true, "Bearer {value}": false} {
		i, err := NewInjector([]Secret{{ID: "sec_1", Value: value(t, pair), Grants: []Grant{grant(func(g *Grant) { g.Template = template })}}})
		if err != nil {
			t.Fatal(err)
		}
		done, err := i.Apply(right, request("GET", "https://api.test/v1/models"))
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{"X-Echo": {"password=" + password}}
		if done.Scrub.Header(h) != found || strings.Contains(h.Get("X-Echo"), password) == found {
			t.Errorf("%s: %q", template, h)
		}
	}
}

// Values are looked for in answers of the place that they are granted to, whatever the method and path, and bodies where a grant says so.
func TestScrubberIsForThePlace(t *testing.T) {
	for name, c := range map[string]struct {
		at     func(*Request)
		grant  func(*Grant)
		header bool
		bodies bool
	}{
		"as granted":        {header: true},
		"another path":      {at: func(r *Request) { r.Path = "/v2" }, header: true},
		"withheld":          {at: func(r *Request) { r.Withhold = true }, header: true},
		"bodies":            {grant: func(g *Grant) { g.Scrub = ScrubBodies }, header: true, bodies: true},
		"another port":      {at: func(r *Request) { r.Port = 8443 }},
		"another host":      {at: func(r *Request) { r.Host = "x.api.test" }},
		"of another policy": {grant: func(g *Grant) { g.Policies = []string{"data"} }},
	} {
		at := right
		if c.at != nil {
			c.at(&at)
		}
		done, err := injector(t, grant(c.grant)).Apply(at, request("GET", "https://api.test/v1/models"))
		if err != nil {
			t.Fatal(err)
		}
		if found := done.Scrub.Header(http.Header{"X": {canary}}); found != c.header || done.Scrub.Bodies() != c.bodies {
			t.Errorf("%s: header %v, bodies %v", name, found, done.Scrub.Bodies())
		}
	}
	g := grant(func(g *Grant) { g.Scrub = "all" })
	if err := g.Complete(); err == nil || !strings.HasPrefix(err.Error(), "scrub: ") {
		t.Errorf("an unknown choice: %v", err)
	}
}

// What can't begin a value goes on at once, and so does the end of what could have.
func TestScrubbingHoldsNothingBack(t *testing.T) {
	s := scrubberOf(t, canary)
	in, out := io.Pipe()
	defer in.Close()
	body := s.Body(in)
	buf := make([]byte, 100)
	for _, event := range []string{"data: 1\n\n", "data: " + canary[:9] + "\n\n", "data: 2\n\n"} {
		go out.Write([]byte(event))
		n, err := body.Read(buf)
		if err != nil || string(buf[:n]) != event {
			t.Fatalf("got %q, %v, want %q", buf[:n], err, event)
		}
	}
	go func() { out.Write([]byte("id: " + canary[:9])); out.Write([]byte(canary[9:] + "\n\n")) }()
	first, _ := body.Read(buf)
	if string(buf[:first]) != "id: " {
		t.Errorf("of the first half, %q", buf[:first])
	}
	second, _ := body.Read(buf)
	if want := strings.Repeat("x", len(canary)) + "\n\n"; string(buf[:second]) != want {
		t.Errorf("then %q, want %q", buf[:second], want)
	}
}

// FuzzScrub compares the stream with a search of the whole, however it is cut.
func FuzzScrub(f *testing.F) {
	f.Add("before canary-value-4711 behind", "canary-value-4711", "ary-value-4711 be", 3)
	f.Add("aaaaaaaaaaaaaaaaaaaaaaaab", "aaaaaaaaaa", "aaaaaaaaab", 1)
	f.Add("abcdefghijabcdefghij", "abcdefghij", "fghijabcde", 7)
	f.Fuzz(func(t *testing.T, text, one, two string, cut int) {
		if len(one) < shortestForm || len(two) < shortestForm || cut < 1 {
			return
		}
		s := newScrubber(true, [][]byte{[]byte(one), []byte(two)})
		want := []byte(text)
		for _, form := range s.forms {
			for i := range text {
				if strings.HasPrefix(text[i:], string(form)) {
					copy(want[i:], bytes.Repeat([]byte{scrubbed}, len(form)))
				}
			}
		}
		got, err := io.ReadAll(s.Body(io.NopCloser(&pieces{text, cut})))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}

// pieces reads so many bytes at a time.
type pieces struct {
	rest string
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.n, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// BenchmarkScrub watches what the answers of a granted host cost: of a typical head each, and a body where it was chosen.
func BenchmarkScrub(b *testing.B) {
	s := scrubberOf(b, "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL")
	h := http.Header{}
	for i := range 12 {
		h.Set(fmt.Sprint("X-Field-", i), "some text as fields of answers have it, 50 bytes")
	}
	b.Run("head", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Header(h)
		}
	})
	text := strings.Repeat(`{"id": 4711, "name": "something of an answer", "text": "the quick brown fox jumps over the lazy dog"}`, 700)
	b.Run("body of 70 KiB", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := io.Copy(io.Discard, struct{ io.Reader }{s.Body(io.NopCloser(strings.NewReader(text)))}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
