package house

import (
	"go/ast"
	"go/token"
	"strings"
)

// checkVariables finds package variables that hold state. A variable may stand if it is set where it is
// declared and nowhere else, and its value is not made to be changed: an error, a compiled expression, a
// table, an embedded file, an interface check.
func (s *Source) checkVariables(pass excuse) []Finding {
	if s.Folder == "tests" || strings.HasPrefix(s.Folder, "tests/") {
		return nil
	}
	written := s.writtenNames()
	var found []Finding
	s.eachDecl(func(d ast.Decl) {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			return
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			for i, n := range v.Names {
				fault := variableFault(g, v, i)
				if written[n.Name] {
					fault = "is written after its declaration"
				}
				if fault == "" || n.Name == "_" || pass("variable", s.Folder+"."+n.Name) {
					continue
				}
				found = append(found, Finding{s.fset.Position(n.Pos()).String(), "package variable " + n.Name + " " + fault,
					"state without an owner makes two runs in one process one run"})
			}
		}
	})
	return found
}

// variableFault says why a variable's declaration lets it hold state, or nothing.
func variableFault(g *ast.GenDecl, v *ast.ValueSpec, i int) string {
	if embedded(g.Doc) || embedded(v.Doc) {
		return ""
	}
	if len(v.Values) == 0 {
		return "is declared without a value"
	}
	value := v.Values[min(i, len(v.Values)-1)]
	if u, ok := value.(*ast.UnaryExpr); ok && u.Op == token.AND {
		value = u.X
	}
	switch x := value.(type) {
	case *ast.CompositeLit:
		if t := typeText(x.Type); strings.HasPrefix(t, "sync.") || strings.HasPrefix(t, "atomic.") {
			return "is a " + t
		}
	case *ast.CallExpr:
		if f := typeText(x.Fun); f == "make" || f == "new" {
			return "is made empty, to be filled later"
		}
	}
	return ""
}

func embedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

// writtenNames collects the package-level names that some code of the package writes to: assigns, counts,
// takes the address of, clears or deletes from, whole or in part.
func (s *Source) writtenNames() map[string]bool {
	written := map[string]bool{}
	mark := func(e ast.Expr) {
		if id := rootIdent(e); id != nil && (id.Obj == nil || s.isPackageVar(id)) {
			written[id.Name] = true
		}
	}
	for _, name := range s.names(false) {
		ast.Inspect(s.files[name], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					if n.Tok != token.DEFINE {
						mark(e)
					}
				}
			case *ast.IncDecStmt:
				mark(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					mark(n.X)
				}
			case *ast.CallExpr:
				if f := typeText(n.Fun); (f == "delete" || f == "clear" || f == "copy") && len(n.Args) > 0 {
					mark(n.Args[0])
				}
			}
			return true
		})
	}
	return written
}

// rootIdent is the variable that an expression such as v.f[i] or *v begins with.
func rootIdent(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// isPackageVar says that a name which the parser resolved within its file is declared at the top of that file.
func (s *Source) isPackageVar(id *ast.Ident) bool {
	spec, ok := id.Obj.Decl.(*ast.ValueSpec)
	if !ok {
		return false
	}
	for _, f := range s.files {
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Pos() <= spec.Pos() && spec.End() <= g.End() {
				return true
			}
		}
	}
	return false
}
