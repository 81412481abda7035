package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one change of one file: the bytes from start to end become text.
type mutant struct {
	source
	line       int
	start, end int
	text       string
	was        string
}

func (m mutant) String() string {
	shown := m.text
	if shown == "" {
		shown = "(left out)"
	}
	return fmt.Sprintf("%s:%d: %s -> %s", m.path, m.line, brief(m.was), brief(shown))
}

func brief(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 90 {
		s = s[:90] + "…"
	}
	return s
}

// apply returns the file as the mutant has it.
func (m mutant) apply() ([]byte, error) {
	text, err := os.ReadFile(m.path)
	if err != nil {
		return nil, err
	}
	return slices.Concat(text[:m.start], []byte(m.text), text[m.end:]), nil
}

var swapped = map[token.Token]string{
	token.EQL: "!=", token.NEQ: "==", token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.LAND: "||", token.LOR: "&&", token.ADD: "-", token.SUB: "+", token.MUL: "/",
}

// mutantsOf lists every change that is known for a file. Whether it compiles shows later.
func mutantsOf(s source) ([]mutant, error) {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(text, []byte("// Code generated")) {
		return nil, nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, s.path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := finder{source: s, set: set, text: text}
	ast.Inspect(file, f.visit)
	return f.found, nil
}

type finder struct {
	source
	set   *token.FileSet
	text  []byte
	found []mutant
}

func (f *finder) add(from, to token.Pos, text string) {
	start, end := f.set.Position(from), f.set.Position(to)
	f.found = append(f.found, mutant{f.source, start.Line, start.Offset, end.Offset, text, string(f.text[start.Offset:end.Offset])})
}

func (f *finder) of(n ast.Node) string {
	return string(f.text[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset])
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR // constants and types: their numbers are mostly defaults, which their users' tests set
	case *ast.IfStmt:
		f.add(n.Cond.Pos(), n.Cond.End(), "!("+f.of(n.Cond)+")")
	case *ast.BinaryExpr:
		if op, ok := swapped[n.Op]; ok {
			f.add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), op)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.add(n.OpPos, n.OpPos+1, "")
		}
	case *ast.Ident:
		switch n.Name {
		case "true":
			f.add(n.Pos(), n.End(), "false")
		case "false":
			f.add(n.Pos(), n.End(), "true")
		}
	case *ast.BasicLit:
		if number, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
			f.add(n.Pos(), n.End(), strconv.Itoa(number+1))
		}
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			if id, ok := r.(*ast.Ident); ok && id.Name == "err" {
				f.add(id.Pos(), id.End(), "nil")
			}
		}
	case *ast.CallExpr:
		return !says(n)
	}
	return true
}

// statements leaves each out that can be.
func (f *finder) statements(list []ast.Stmt) {
	for _, one := range list {
		switch s := one.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && says(call) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.IncDecStmt, *ast.DeferStmt, *ast.BranchStmt, *ast.GoStmt, *ast.SendStmt:
		default:
			continue
		}
		f.add(one.Pos(), one.End(), "")
	}
}

// says reports whether a call only writes words for people, which tests don't pin down.
func says(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch x := selector.X.(type) {
	case *ast.Ident:
		return x.Name == "fmt" || x.Name == "log" || x.Name == "errors" && selector.Sel.Name == "New"
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "log")
	}
	return false
}
