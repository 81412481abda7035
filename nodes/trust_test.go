package nodes

import (
	"os"
	"path/filepath"
	"testing"

	"portreeve.dev/nodes/images"
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
			if err := writeTrust(dir, images.Image{Rootfs: rootfs}, []byte("ours")); err != nil {
				t.Fatal(err)
			}
			for file, want := range map[string]string{trustRoot: "ours", trustBundle: c.want} {
				if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
					t.Errorf("%s holds %q (%v), want %q", file, got, err, want)
				}
			}
		})
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
