package dial_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// dialing are the ways to open a connection, or to look a name up, that only this package may use.
var dialing = map[string][]string{
	"net":                        {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialIP", "DialUnix", "Dialer", "Resolver", "DefaultResolver", "Lookup*"},
	"crypto/tls":                 {"Dial", "DialWithDialer", "Dialer"},
	"net/http":                   {"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm", "ProxyFromEnvironment"},
	"syscall":                    {"Connect"},
	"golang.org/x/sys/unix":      {"Connect"},
	"golang.org/x/net/proxy":     {"*"},
	"github.com/miekg/dns":       {"Client", "Dial*", "Exchange*"},
	"golang.org/x/net/websocket": {"*"},
}

// exempt files dial something that no sandbox or org chooses. Each says what.
var exempt = map[string]string{
	"egresstest/wire.go": "the sandbox's side of a test, to a listener of its own",
}

func TestNoOtherDialer(t *testing.T) {
	const root = ".."
	seen := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if strings.HasPrefix(rel, "dial/") || exempt[rel] != "" {
			return nil
		}
		seen++
		for _, use := range dialingIn(t, path) {
			t.Errorf("egress/%s uses %s: connections out of here are made by egress/dial", rel, use)
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d files seen: %v", seen, err)
	}
	if got := dialingIn(t, "connect.go"); len(got) == 0 {
		t.Error("the search doesn't even find this package's own dialer")
	}
}

func dialingIn(t *testing.T, path string) (found []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]string) // of the imports in this file
	for _, i := range f.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		name := p[strings.LastIndexByte(p, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = p
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok || id.Obj != nil {
			return true
		}
		for _, bad := range dialing[names[id.Name]] {
			prefix, any := strings.CutSuffix(bad, "*")
			if sel.Sel.Name == bad || any && strings.HasPrefix(sel.Sel.Name, prefix) {
				found = append(found, names[id.Name]+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return found
}
