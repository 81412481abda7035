package tree

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	keyOfPage = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
	logLevels = map[string]bool{"Debug": true, "Info": true, "Warn": true, "Error": true}
)

// TestPageOfLogsKnowsEachKey: whoever looks for a word of a log line finds it in docs/operations/logging.md, and the other way round.
func TestPageOfLogsKnowsEachKey(t *testing.T) {
	told := map[string]bool{}
	for _, s := range sources(t, ".md") {
		if s.path != "docs/operations/logging.md" {
			continue
		}
		for _, m := range keyOfPage.FindAllStringSubmatch(s.data, -1) {
			for _, key := range strings.Split(m[1], ",") {
				told[strings.Trim(key, " `")] = true
			}
		}
	}
	if len(told) == 0 {
		t.Fatal("the page tells of no key")
	}
	used := map[string]bool{}
	for _, s := range sources(t, ".go") {
		folder, _, _ := strings.Cut(s.path, "/")
		if strings.HasSuffix(s.path, "_test.go") || folder == "lab" || folder == "e2e" || strings.HasPrefix(folder, ".") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Base(s.path), s.data, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, key := range keysOf(call) {
				used[key] = true
				if !told[key] {
					t.Errorf("%s logs the key %q, which docs/operations/logging.md does not tell of", s.path, key)
				}
			}
			return true
		})
	}
	for key := range told {
		if !used[key] {
			t.Errorf("docs/operations/logging.md tells of the key %q, which nothing logs", key)
		}
	}
}

// keysOf returns the keys of a call like log.Info("message", "key", value) or slog.Any("key", value).
func keysOf(call *ast.CallExpr) (keys []string) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	if x, ok := method.X.(*ast.Ident); ok && x.Name == "slog" && len(call.Args) == 2 {
		return literals(call.Args[:1])
	} else if ok && x.Name == "http" { // http.Error
		return nil
	}
	if !logLevels[method.Sel.Name] || len(call.Args) < 3 {
		return nil
	}
	for i := 1; i+1 < len(call.Args); i += 2 {
		keys = append(keys, literals(call.Args[i:i+1])...)
	}
	return keys
}

func literals(args []ast.Expr) (all []string) {
	for _, a := range args {
		if lit, ok := a.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				all = append(all, s)
			}
		}
	}
	return all
}
