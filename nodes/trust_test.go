package nodes

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestTrustIsTheImagesRootsAndTheOrgs(t *testing.T) {
	for name, c := range map[string]struct {
		roots string // of the image; empty: it has none
		want  string
	}{
		"an image with roots":    {"theirs", "theirs\nours"},
		"an image without roots": {"", "\nours"},
	} {
		t.Run(name, func(t *testing.T) {
			rootfs, dir := t.TempDir(), filepath.Join(t.TempDir(), "trust")
			if c.roots != "" {
				path := filepath.Join(rootfs, imageRoots)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(c.roots), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			own, err := readImageRoots(rootfs)
			if err != nil {
				t.Fatal(err)
			}
			if err := writeTrust(dir, own, []byte("ours")); err != nil {
				t.Fatal(err)
			}
			holds(t, dir, map[string]string{trustRoot: "ours", trustBundle: c.want})
		})
	}
}

// holds wants files to hold a text.
func holds(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	for file, text := range want {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != text {
			t.Errorf("%s holds %q (%v), want %q", file, got, err, text)
		}
	}
}

// TestTrustIsReplacedByTheSide: whoever holds a file open goes on reading it, and it stays where it was.
func TestTrustIsReplacedByTheSide(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trust")
	write := func(org string) {
		t.Helper()
		if err := writeTrust(dir, []byte("theirs"), []byte(org)); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	f, err := os.Open(filepath.Join(dir, trustBundle))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write("old+new")
	write("old+new") // again: nothing changes
	write("new")
	if got, err := io.ReadAll(f); err != nil || string(got) != "theirs\nold" {
		t.Errorf("a file that was open reads %q (%v)", got, err)
	}
	holds(t, dir, map[string]string{trustRoot: "new", trustBundle: "theirs\nnew", trustRoot + ".1": "old", trustBundle + ".1": "theirs\nold",
		trustRoot + ".2": "old+new", trustBundle + ".2": "theirs\nold+new", trustWget: "ca_certificate = /etc/portreeve/bundle.pem\n"})
	if all, err := os.ReadDir(dir); err != nil || len(all) != 9 {
		t.Errorf("the directory holds %v (%v)", all, err)
	}
}

// An image is somebody else's: a link in it must not make the node read a file of the host.
func TestRootsBehindALinkOutOfTheImageAreRefused(t *testing.T) {
	rootfs := t.TempDir()
	outside := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(rootfs, imageRoots)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, path); err != nil {
		t.Fatal(err)
	}
	if got, err := readImageRoots(rootfs); err == nil {
		t.Fatalf("read %q", got)
	}
}

func TestMakersVariablesStay(t *testing.T) {
	env := trustEnv(map[string]string{"SSL_CERT_FILE": "/own.pem", "X": "1"})
	if env["SSL_CERT_FILE"] != "/own.pem" || env["X"] != "1" || env["CURL_CA_BUNDLE"] != "/etc/portreeve/bundle.pem" || env["NODE_EXTRA_CA_CERTS"] != "/etc/portreeve/ca.pem" {
		t.Fatalf("got %v", env)
	}
}
