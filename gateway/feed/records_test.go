package feed

import "testing"

func TestPathsAreCut(t *testing.T) {
	for _, c := range []struct{ path, prefix string }{
		{"", ""}, {"/", "/"}, {"/a", "/a"}, {"/a/", "/a/"}, {"/a/b", "/a/b"}, {"/a/b/", "/a/b/"},
		{"/a/b/secret", "/a/b/…"}, {"/a/b/c/d", "/a/b/…"}, {"//a/b/c", "//a/…"}, {"/é/ü/x", "/é/ü/…"},
	} {
		if got := (Records{Paths: PathsFull}).Path(c.path); got != c.path {
			t.Errorf("full: %q of %q", got, c.path)
		}
		if got := (Records{Paths: PathsPrefix}).Path(c.path); got != c.prefix {
			t.Errorf("prefix: %q of %q, want %q", got, c.path, c.prefix)
		}
		for _, none := range []string{PathsNone, "", "everything"} {
			if got := (Records{Paths: none}).Path(c.path); got != "" {
				t.Errorf("%q: %q of %q", none, got, c.path)
			}
		}
	}
}
