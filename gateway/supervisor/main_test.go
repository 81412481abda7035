package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"

	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// program is this test once more, also for a uid that can't enter its folder.
const program = "/proc/self/exe"

// asChild, as the first argument, makes this program the one that a supervisor starts; the second says what it does.
const asChild = "supervised-child"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == asChild {
		if err := children[os.Args[2]](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// children are all that such a program can do.
var children = map[string]func() error{
	"greet":  greet,
	"refuse": refuse,
	"peers":  meetPeers,
}

// greet takes a listener and sends its pid to each that connects.
func greet() error {
	return child.Run(context.Background(), child.Spec{
		Start: func(_ context.Context, _ json.RawMessage, files []*os.File) (any, []*os.File, error) {
			if len(files) != 1 {
				return nil, nil, fmt.Errorf("got %d files", len(files))
			}
			l, err := net.FileListener(files[0])
			files[0].Close()
			if err != nil {
				return nil, nil, err
			}
			go greetAll(l)
			return struct{}{}, nil, nil
		},
	})
}

func greetAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprintln(c, os.Getpid()) // and is left open: the next process must get the port all the same
	}
}

// refuse never serves.
func refuse() error {
	return child.Run(context.Background(), child.Spec{
		Start: func(context.Context, json.RawMessage, []*os.File) (any, []*os.File, error) {
			return nil, nil, errors.New("this one does not want to")
		},
	})
}

// meetPeers calls "met" on each sibling that it is introduced to, and sends a file that nobody asked for with its answer.
func meetPeers() error {
	siblings := map[string]*child.Sibling{}
	for _, name := range []string{Node, Edge, Inward, Control, Ingress} {
		mux := link.NewMux()
		link.Handle(mux, "pid", func(context.Context, struct{}) (int, error) { return os.Getpid(), nil })
		siblings[name] = &child.Sibling{Mux: mux, Up: func(ctx context.Context, conn *link.Conn) {
			var pid int
			if err := conn.Call(ctx, "pid", struct{}{}, &pid); err == nil {
				slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info("met", "peer", name, "pid", pid)
			}
		}}
	}
	return child.Run(context.Background(), child.Spec{
		Start: func(context.Context, json.RawMessage, []*os.File) (any, []*os.File, error) {
			stray, err := os.Open("/dev/null")
			return role.Caged{}, []*os.File{stray}, err
		},
		Siblings: siblings,
	})
}
