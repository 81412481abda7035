package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNobodyElseReachesAnImage: images have directories that anybody may write to, and their files are in every sandbox.
func TestNobodyElseReachesAnImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(dir, 0o755); err != nil { // as earlier versions made it
		t.Fatal(err)
	}
	openAt(t, Config{Dir: dir})
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("it is %v, %v", st.Mode(), err)
	}
}

// TestStoreHasOneOwner: another process would take a build that goes on for one that was cut off, and remove it under it.
func TestStoreHasOneOwner(t *testing.T) {
	s := open(t)
	building := filepath.Join(s.c.Dir, partial+"1")
	if err := os.Mkdir(building, 0o755); err != nil {
		t.Fatal(err)
	}
	if second, err := Open(s.c); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second owner: %v, %v", second, err)
	}
	if _, err := os.Stat(building); err != nil {
		t.Errorf("the build of the first: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openAt(t, s.c)
	if _, err := os.Stat(building); !os.IsNotExist(err) {
		t.Errorf("a build that was cut off, once its owner is gone: %v", err)
	}
}
