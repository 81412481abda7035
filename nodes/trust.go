package nodes

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"portreeve.dev/nodes/images"
	"portreeve.dev/nodes/runsc"
)

// Names of the files below runsc.TrustDir. They are written once, before the sandbox starts, and never replaced: a program
// may hold them open, and a restore needs them where they were.
const (
	trustRoot   = "ca.pem"     // the org's own root
	trustBundle = "bundle.pem" // the image's roots and the org's
	trustWget   = "wgetrc"     // names the bundle to wget, which has no variable for it
)

// imageRoots is where Debian's and Alpine's images keep the roots that their programs trust.
const imageRoots = "etc/ssl/certs/ca-certificates.crt"

// writeTrust writes the files into dir.
func writeTrust(dir string, img images.Image, root []byte) error {
	own, err := readImageRoots(img.Rootfs)
	if err != nil {
		return err
	}
	bundle := bytes.Join([][]byte{own, root}, []byte("\n"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, trustRoot), root, 0o644),
		os.WriteFile(filepath.Join(dir, trustBundle), bundle, 0o644),
		os.WriteFile(filepath.Join(dir, trustWget), WgetTrust(filepath.Join(runsc.TrustDir, trustBundle)), 0o644),
	)
}

// readImageRoots reads the roots out of an image, whose links can't lead out of it. An image may have none.
func readImageRoots(rootfs string) ([]byte, error) {
	root, err := os.OpenRoot(rootfs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the runtime will say so
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	own, err := root.ReadFile(imageRoots)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return own, err
}

// trustEnv makes the programs that have a variable for it use these files. What the sandbox's maker set stays.
func trustEnv(env map[string]string) map[string]string {
	all := TrustVariables(filepath.Join(runsc.TrustDir, trustRoot), filepath.Join(runsc.TrustDir, trustBundle), filepath.Join(runsc.TrustDir, trustWget))
	maps.Copy(all, env)
	return all
}

// TrustVariables are the variables by which programs are told whom to trust. Those that replace their roots get the bundle, Node
// adds the org's own root, and wget has a file of its own (WgetTrust), as it has no variable for this.
func TrustVariables(root, bundle, wget string) map[string]string {
	all := map[string]string{"NODE_EXTRA_CA_CERTS": root, "WGETRC": wget}
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"} {
		all[name] = bundle
	}
	return all
}

// WgetTrust is what stands in wget's file.
func WgetTrust(bundle string) []byte { return []byte("ca_certificate = " + bundle + "\n") }
