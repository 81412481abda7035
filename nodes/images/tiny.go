package images

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// BuildTiny makes the image "tiny" from a static busybox.
func (s *Store) BuildTiny(ctx context.Context, busybox string) (Image, error) {
	var b bytes.Buffer
	if err := WriteTiny(ctx, &b, busybox); err != nil {
		return Image{}, err
	}
	return s.Import(ctx, "tiny", &b)
}

var applet = regexp.MustCompile(`^[a-z0-9\[_.-]+$`)

// WriteTiny writes the image "tiny" as a tar stream. The same busybox gives the same bytes. (Accounts and mount points that
// every image needs are added when it is imported.)
func WriteTiny(ctx context.Context, w io.Writer, busybox string) error {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return fmt.Errorf("building image tiny: %w", err)
	}
	if err := static(program); err != nil {
		return fmt.Errorf("building image tiny: %s: %w", busybox, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("building image tiny: listing applets of %s: %w", busybox, err)
	}
	applets := strings.Fields(string(out))
	slices.Sort(applets)

	tw := tar.NewWriter(w)
	put := func(h *tar.Header, content []byte) {
		h.Size, h.ModTime, h.Format = int64(len(content)), time.Unix(0, 0), tar.FormatUSTAR
		if err == nil {
			err = tw.WriteHeader(h)
		}
		if err == nil {
			_, err = tw.Write(content)
		}
	}
	for _, d := range []string{".portreeve", "bin", "dev", "etc", "etc/ssl", "etc/ssl/certs", "proc", "root", "run", "run/portreeve",
		"sbin", "sys", "tmp", "usr", "usr/bin", "usr/sbin", "var", "var/tmp", "workspace"} {
		put(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755}, nil)
	}
	put(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, program)
	for _, a := range slices.Compact(applets) {
		if a != "busybox" && applet.MatchString(a) {
			put(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "busybox", Mode: 0o777}, nil)
		}
	}
	return errors.Join(err, tw.Close())
}

// static refuses a program that would look for libraries, of which the image has none.
func static(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("not a program: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("needs shared libraries; Debian has a static one in the package busybox-static")
		}
	}
	return nil
}
