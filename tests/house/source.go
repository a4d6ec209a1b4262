package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// Source is the Go source of one package folder.
type Source struct {
	Folder string // relative to the module, slash-separated
	fset   *token.FileSet
	files  map[string]*ast.File
	lines  map[string]int
}

// ParseSource parses the Go files of a folder; files maps their names, relative to the module, to their text.
func ParseSource(folder string, files map[string][]byte) (*Source, error) {
	s := &Source{Folder: folder, fset: token.NewFileSet(), files: map[string]*ast.File{}, lines: map[string]int{}}
	for name, text := range files {
		f, err := parser.ParseFile(s.fset, name, text, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		s.files[name], s.lines[name] = f, bytes.Count(text, []byte("\n"))
	}
	return s, nil
}

// names lists the files in order, with or without the tests.
func (s *Source) names(tests bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.files)), func(name string) bool {
		return !tests && strings.HasSuffix(name, "_test.go")
	})
}

// excuse says whether a row of Excused lets a name break a rule.
type excuse func(rule, name string) bool

// CheckSource holds a package's source against the rules on text. excused is Excused, and used collects
// the rows that were needed. The second result is notes: worth a look, no failure.
func CheckSource(s *Source, excused map[string]string, used map[string]bool) (found, notes []Finding) {
	pass := func(rule, name string) bool {
		row := rule + " " + name
		if excused[row] == "" {
			return false
		}
		used[row] = true
		return true
	}
	found = append(found, s.checkPackageComment()...)
	found = append(found, s.checkFileLines(pass)...)
	found = append(found, s.checkExported()...)
	found = append(found, s.checkEnvironment()...)
	found = append(found, s.checkVariables(pass)...)
	functions, notes := s.checkFunctions(pass)
	return append(found, functions...), notes
}

func (s *Source) checkPackageComment() []Finding {
	var with []string
	names := s.names(false)
	for _, name := range names {
		if f := s.files[name]; f.Doc != nil {
			with = append(with, name)
			if want := "Package " + f.Name.Name + " "; f.Name.Name != "main" && !strings.HasPrefix(f.Doc.Text(), want) {
				return []Finding{{name, fmt.Sprintf("the package comment does not begin with %q", want), "go doc shows it so"}}
			}
		}
	}
	if len(names) == 0 || len(with) == 1 {
		return nil
	}
	return []Finding{{s.Folder, fmt.Sprintf("%d package comments %v, want one", len(with), with),
		"one place says what a package owns and promises"}}
}

func (s *Source) checkFileLines(pass excuse) []Finding {
	var found []Finding
	for _, name := range s.names(true) {
		n := s.lines[name]
		if n <= SoftFileLines || ast.IsGenerated(s.files[name]) || n <= HardFileLines && pass("length", name) {
			continue
		}
		found = append(found, Finding{name, fmt.Sprintf("%d lines, more than %d (with a reason, %d)", n, SoftFileLines, HardFileLines),
			"a file is something that one can hold in mind"})
	}
	return found
}

func (s *Source) checkFunctions(pass excuse) (found, notes []Finding) {
	for _, name := range s.names(true) {
		test := strings.HasSuffix(name, "_test.go")
		for _, d := range s.files[name].Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			where := s.Folder + "." + funcName(fn)
			lines := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line + 1
			if fault := signatureFault(fn.Type); fault != "" && !test && !ast.IsGenerated(s.files[name]) && !pass("signature", where) {
				found = append(found, Finding{where, fault, "a call says what its arguments mean"})
			}
			if lines > HardFuncLines && !pass("length", where) {
				found = append(found, Finding{where, fmt.Sprintf("%d lines, more than %d", lines, HardFuncLines), "a function does one thing"})
			} else if lines > SoftFuncLines && !test {
				notes = append(notes, Finding{where, fmt.Sprintf("%d lines, more than %d", lines, SoftFuncLines), "a function does one thing"})
			}
		}
	}
	return found, notes
}

// funcName is "Func" or "Type.Method".
func funcName(fn *ast.FuncDecl) string {
	if t := receiver(fn); t != "" {
		return t + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// receiver is the name of the receiver's type, or nothing.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}

// signatureFault says what is too many in a signature, or nothing.
func signatureFault(t *ast.FuncType) string {
	params, results, last := 0, 0, ""
	for _, f := range t.Params.List {
		if kind := typeText(f.Type); kind != "context.Context" && !strings.HasPrefix(kind, "*testing.") && kind != "testing.TB" {
			params += max(len(f.Names), 1)
		}
	}
	if t.Results != nil {
		for _, f := range t.Results.List {
			results += max(len(f.Names), 1)
			last = typeText(f.Type)
		}
	}
	if last == "error" || last == "bool" {
		results--
	}
	switch {
	case params > MaxParameters:
		return fmt.Sprintf("%d parameters, more than %d: use a struct", params, MaxParameters)
	case results > MaxResults:
		return fmt.Sprintf("%d results, more than %d beside the error: use a struct", results, MaxResults)
	}
	return ""
}

// typeText spells the simple types that the checks look for.
func typeText(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.StarExpr:
		return "*" + typeText(x.X)
	case *ast.SelectorExpr:
		return typeText(x.X) + "." + x.Sel.Name
	}
	return ""
}

// checkEnvironment finds reads of the environment outside cmd. Tests may read it.
func (s *Source) checkEnvironment() []Finding {
	if s.Folder == "cmd" || strings.HasPrefix(s.Folder, "cmd/") {
		return nil
	}
	var found []Finding
	for _, name := range s.names(false) {
		local := importNames(s.files[name])
		ast.Inspect(s.files[name], func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok || local[x.Name] != "os" && local[x.Name] != "syscall" {
				return true
			}
			switch sel.Sel.Name {
			case "Getenv", "LookupEnv", "Environ", "ExpandEnv":
				found = append(found, Finding{s.fset.Position(sel.Pos()).String(), "reads the environment by " + sel.Sel.Name,
					"settings arrive as arguments: only cmd reads the environment"})
			}
			return true
		})
	}
	return found
}

// importNames maps the names that a file uses for its imports to their paths.
func importNames(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range f.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		if spec.Name != nil {
			names[spec.Name.Name] = p
		} else {
			names[path.Base(p)] = p
		}
	}
	return names
}
