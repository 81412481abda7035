package nodes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"portreeve.dev/nodes/runsc"
)

// Names of the files below runsc.TrustDir. The first two are links to the newest of files with numbers, which are written once and
// stay for as long as the sandbox does: a program may hold one open, and a restore needs it where it was.
const (
	trustRoot   = "ca.pem"     // the org's own roots, the one that signs first
	trustBundle = "bundle.pem" // the image's roots and the org's
	trustWget   = "wgetrc"     // names the bundle to wget, which has no variable for it
)

// imageRoots is where Debian's and Alpine's images keep the roots that their programs trust.
const imageRoots = "etc/ssl/certs/ca-certificates.crt"

// writeTrust writes the files into dir: own are the image's roots, org those of the sandbox's org. What is there already and the
// same is left alone.
func writeTrust(dir string, own, org []byte) error {
	if now, err := os.ReadFile(filepath.Join(dir, trustRoot)); err == nil && bytes.Equal(now, org) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	n := 1
	for ; ; n++ {
		if _, err := os.Lstat(filepath.Join(dir, numbered(trustRoot, n))); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	// The bundle first: while the link to the roots is the old one, another try writes all again.
	bundle := bytes.Join([][]byte{own, org}, []byte("\n"))
	return errors.Join(
		os.WriteFile(filepath.Join(dir, trustWget), WgetTrust(filepath.Join(runsc.TrustDir, trustBundle)), 0o644),
		point(dir, trustBundle, n, bundle),
		point(dir, trustRoot, n, org),
	)
}

func numbered(name string, n int) string { return fmt.Sprintf("%s.%d", name, n) }

// point writes the file of a number, and lets the link name lead there. Whoever opens the name gets the whole of one file or of the
// other.
func point(dir, name string, n int, content []byte) error {
	file := numbered(name, n)
	if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
		return err
	}
	link := filepath.Join(dir, name)
	if err := os.Remove(link + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.Symlink(file, link+".new"), os.Rename(link+".new", link))
}

// Trust makes the sandboxes of an org trust these roots, in PEM: programs that they start from now on, and those that read the
// files again. It is durable when it returns without an error; with one, some of them may trust what they did.
func (n *Node) Trust(org string, roots []byte) error {
	var all error
	for _, s := range n.List() {
		if s.Org == org {
			if err := n.trust(s.Sandbox, roots); err != nil && !errors.Is(err, ErrUnknown) {
				all = errors.Join(all, fmt.Errorf("trust of sandbox %q: %w", s.Sandbox, err))
			}
		}
	}
	return all
}

func (n *Node) trust(sandbox string, roots []byte) error {
	b, err := n.lock(sandbox)
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	if b.rec.State != Running && b.rec.State != Paused {
		return nil // it is going
	}
	own, err := os.ReadFile(n.dirs.roots(b.rec.RunscID))
	if err != nil {
		return err
	}
	if err := writeTrust(n.dirs.trust(b.rec.RunscID), own, roots); err != nil {
		return err
	}
	b.rec.Spec.Trust = roots
	return n.save(b)
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
