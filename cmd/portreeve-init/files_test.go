package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"portreeve.dev/nodes/guest"
	"portreeve.dev/nodes/guest/frame"
)

func readFile(ctx context.Context, b *box, path string, limit int64) (string, error) {
	f, err := b.client.ReadFile(ctx, path, limit)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	return string(content), err
}

func writeFile(ctx context.Context, b *box, path, content string) error {
	_, err := b.client.WriteFile(ctx, path, strings.NewReader(content), guest.WriteOptions{})
	return err
}

func TestFilesRoundTrip(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		ctx := within(t, 60*time.Second)
		big := make([]byte, 2<<20+3)
		rand.New(rand.NewSource(2)).Read(big)
		info, err := b.client.WriteFile(ctx, "/workspace/new/deep/file.bin", bytes.NewReader(big), guest.WriteOptions{Mode: 0o755, Mkdirs: true})
		if err != nil || info.Size != int64(len(big)) || info.Mode != 0o755 || info.Name != "file.bin" || info.Kind != frame.KindFile {
			t.Fatalf("%+v, %v", info, err)
		}
		if got, err := readFile(ctx, b, "new/deep/file.bin", 8<<20); err != nil || got != string(big) {
			t.Errorf("%d bytes came back from %d: %v", len(got), len(big), err)
		}
		if err := writeFile(ctx, b, "/workspace/new/deep/file.bin", "short"); err != nil {
			t.Fatal(err)
		}
		info, err = b.client.Stat(ctx, "/workspace/new/deep/file.bin")
		if err != nil || info.Size != 5 || info.Mode != 0o755 {
			t.Errorf("the mode was not kept: %+v, %v", info, err)
		}
		if err := writeFile(ctx, b, "/tmp/empty", ""); err != nil {
			t.Fatal(err)
		}
		if got, err := readFile(ctx, b, "/tmp/empty", 0); err != nil || got != "" {
			t.Errorf("empty file: %q, %v", got, err)
		}
		list, err := b.client.List(ctx, "/workspace/new")
		if err != nil || len(list) != 1 || list[0].Name != "deep" || list[0].Kind != frame.KindDir {
			t.Errorf("%+v, %v", list, err)
		}
		if err := b.client.Delete(ctx, "/workspace/new", false); !errors.Is(err, guest.ErrNotRegular) {
			t.Errorf("deleting a full folder: %v", err)
		}
		if err := b.client.Delete(ctx, "/workspace/new", true); err != nil {
			t.Error(err)
		}
		if _, err := b.client.Stat(ctx, "/workspace/new"); !errors.Is(err, guest.ErrNotFound) {
			t.Errorf("deleted, yet %v", err)
		}
		for _, missing := range []error{
			b.client.Delete(ctx, "/workspace/new", true), writeFile(ctx, b, "/workspace/new/x", ""), second(readFile(ctx, b, "/tmp/nope", 1)), second(b.client.List(ctx, "/tmp/nope")),
		} {
			if !errors.Is(missing, guest.ErrNotFound) {
				t.Errorf("%v, want file not found", missing)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestFilesHaveUserRights(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		ctx := within(t, 30*time.Second)
		if got, err := readFile(ctx, b, "/workspace/rootonly", 100); !errors.Is(err, guest.ErrPermission) {
			t.Errorf("a file that only uid 0 may read: %q, %v", got, err)
		}
		if err := writeFile(ctx, b, "/workspace/owned", "x"); err != nil {
			t.Fatal(err)
		}
		if r := do(t, b, shell("stat -c %u:%g owned; cat owned")); r.stdout != "1001:1001\nx" {
			t.Errorf("owner and content of a written file: %q", r.stdout)
		}
		// The rights of one operation must not stick to init: it still has to become somebody else at the next exec.
		if pong, err := b.session.Ping(ctx); err != nil || pong.Processes < 1 {
			t.Error(pong, err)
		}
	})
}

func TestFilesStayInside(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		ctx := within(t, 30*time.Second)
		do(t, b, shell(`mkdir -p links/dir; cd links; echo inside > dir/file; ln -sfn dir/file good; ln -sfn dir gooddir; ln -sfn /outside/file abs; ln -sfn ../../outside/file rel;
			ln -sfn /outside absdir; ln -sfn ../.. up; ln -sfn loop loop`))
		for _, path := range []string{
			"/outside/file", "/workspace/../outside/file", "/", "/etc/passwd", "/workspacex/file", "/proc/1/environ", "../etc/passwd",
			"/workspace/links/abs", "/workspace/links/rel", "/workspace/links/absdir/file", "/workspace/links/up/outside/file",
		} {
			if got, err := readFile(ctx, b, path, 100); !errors.Is(err, guest.ErrPathOutside) {
				t.Errorf("reading %s: %q, %v", path, got, err)
			}
		}
		for _, path := range []string{"/outside/new", "/workspacex/new", "/workspace/links/absdir/new", "/workspace/links/up/workspacex/new"} {
			if err := writeFile(ctx, b, path, "x"); !errors.Is(err, guest.ErrPathOutside) {
				t.Errorf("writing %s: %v", path, err)
			}
			if err := b.client.Delete(ctx, path, true); !errors.Is(err, guest.ErrPathOutside) {
				t.Errorf("deleting %s: %v", path, err)
			}
		}
		for _, path := range []string{"/outside", "/workspacex", "/workspace/links/absdir", "/workspace/links/up", "/workspace/links/up/outside"} {
			if got, err := b.client.List(ctx, path); !errors.Is(err, guest.ErrPathOutside) {
				t.Errorf("listing %s: %v, %v", path, got, err)
			}
		}
		for _, path := range []string{"/workspace/links/good", "/workspace/links/gooddir/file", "/workspace/./links/x/../dir/file", "links/dir/file"} {
			if got, err := readFile(ctx, b, path, 100); err != nil || got != "inside\n" {
				t.Errorf("reading %s: %q, %v", path, got, err)
			}
		}
		if info, err := b.client.Stat(ctx, "/workspace/links/abs"); err != nil || info.Kind != frame.KindSymlink {
			t.Errorf("a link is itself inside: %+v, %v", info, err)
		}
		if err := writeFile(ctx, b, "/workspace/links/abs", "mine"); err != nil {
			t.Errorf("replacing a link: %v", err)
		}
		if r := do(t, b, shell("cat /outside/file links/abs")); r.stdout != "outsidemine" {
			t.Errorf("a write followed the link: %q", r.stdout)
		}
		if err := b.client.Delete(ctx, "/workspace", true); !errors.Is(err, guest.ErrBadRequest) {
			t.Errorf("deleting the workspace itself: %v", err)
		}
	})
}

func TestFilesRefuseSpecial(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		ctx := within(t, 10*time.Second)
		do(t, b, shell("rm -f fifo; mkfifo fifo; mkdir -p folder; echo x > regular"))
		for _, path := range []string{"fifo", "folder"} {
			if _, err := readFile(ctx, b, path, 100); !errors.Is(err, guest.ErrNotRegular) {
				t.Errorf("reading %s: %v", path, err)
			}
			if err := writeFile(ctx, b, path, "x"); !errors.Is(err, guest.ErrNotRegular) {
				t.Errorf("writing %s: %v", path, err)
			}
		}
		if _, err := b.client.List(ctx, "regular"); !errors.Is(err, guest.ErrNotFound) {
			t.Errorf("listing a file: %v", err)
		}
		if _, err := b.client.List(ctx, "fifo"); err == nil {
			t.Error("listing a fifo succeeded")
		}
		if got, err := readFile(ctx, b, "regular", 2); err != nil || got != "x\n" {
			t.Errorf("reading a regular file: %q, %v", got, err)
		}
		if _, err := readFile(ctx, b, "regular", 1); !errors.Is(err, guest.ErrTooLarge) {
			t.Errorf("reading more than asked for: %v", err)
		}
	})
}

func TestBrokenUploadKeepsOldFile(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		ctx := within(t, 20*time.Second)
		if err := writeFile(ctx, b, "/workspace/kept/file", "old"); !errors.Is(err, guest.ErrNotFound) {
			t.Errorf("without Mkdirs: %v", err)
		}
		do(t, b, shell("mkdir -p kept; echo -n old > kept/file"))
		defer func() { do(t, b, shell("rm -r /workspace/kept")) }()
		broken := errors.New("the source broke")
		source := io.MultiReader(strings.NewReader(strings.Repeat("new", 50000)), iotest.ErrReader(broken))
		if _, err := b.client.WriteFile(ctx, "kept/file", source, guest.WriteOptions{}); !errors.Is(err, broken) {
			t.Errorf("want the cause, got %v", err)
		}
		if got, err := readFile(ctx, b, "kept/file", 1<<20); err != nil || got != "old" {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		eventually(t, "the part is removed", func() bool {
			list, err := b.client.List(ctx, "kept")
			return err == nil && len(list) == 1
		})
	})
}

func TestLongListing(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		ctx := within(t, 60*time.Second)
		do(t, b, shell(`mkdir -p /tmp/long; cd /tmp/long; i=0; while [ $i -lt 500 ]; do : > "n<&>$i"; i=$((i+1)); done; : > "$(printf 'bad\377name')"`))
		list, err := b.client.List(ctx, "/tmp/long")
		if err != nil || len(list) != 501 {
			t.Errorf("%d entries, %v", len(list), err)
		}
		do(t, b, shell("rm -r /tmp/long"))
	})
}
