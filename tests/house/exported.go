package house

import (
	"go/ast"
	"go/token"
)

// checkExported finds exported names without a comment: functions, types, methods of exported types,
// constants and variables. Constants of a type of the package may lean on the type's comment.
func (s *Source) checkExported() []Finding {
	documented := map[string]bool{} // types of the package with a comment
	s.eachDecl(func(d ast.Decl) {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
			for _, spec := range g.Specs {
				t := spec.(*ast.TypeSpec)
				documented[t.Name.Name] = t.Doc != nil || g.Doc != nil || t.Comment != nil
			}
		}
	})
	var found []Finding
	bare := func(n *ast.Ident) {
		if n.IsExported() {
			found = append(found, Finding{s.fset.Position(n.Pos()).String(), n.Name + " has no comment",
				"an exported name is a promise, and somebody has to say which"})
		}
	}
	s.eachDecl(func(d ast.Decl) {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && !plainMethod(d) {
				bare(d.Name)
			}
		case *ast.GenDecl:
			bareSpecs(d, documented, bare)
		}
	})
	return found
}

// plainMethod says that a method needs no comment: of an unexported type, or one whose meaning the
// standard library fixes.
func plainMethod(fn *ast.FuncDecl) bool {
	t := receiver(fn)
	if t == "" {
		return false
	}
	switch fn.Name.Name {
	case "String", "Error", "Unwrap", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText":
		return true
	}
	return !ast.IsExported(t)
}

// bareSpecs calls bare for the names of a declaration that no comment covers.
func bareSpecs(d *ast.GenDecl, documented map[string]bool, bare func(*ast.Ident)) {
	kind := "" // of the constants that repeat the one above
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if !documented[spec.Name.Name] {
				bare(spec.Name)
			}
		case *ast.ValueSpec:
			if spec.Type != nil || len(spec.Values) > 0 {
				kind = typeText(spec.Type)
			}
			if d.Doc != nil || spec.Doc != nil || spec.Comment != nil || d.Tok == token.CONST && documented[kind] {
				continue
			}
			for _, n := range spec.Names {
				bare(n)
			}
		}
	}
}

// eachDecl visits the declarations of the package's own files in order.
func (s *Source) eachDecl(visit func(ast.Decl)) {
	for _, name := range s.names(false) {
		for _, d := range s.files[name].Decls {
			visit(d)
		}
	}
}
