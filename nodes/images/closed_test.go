package images

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNobodyElseReachesAnImage: images have directories that anybody may write to, and their files are in every sandbox.
func TestNobodyElseReachesAnImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(dir, 0o755); err != nil { // as earlier versions made it
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("it is %v, %v", st.Mode(), err)
	}
}
