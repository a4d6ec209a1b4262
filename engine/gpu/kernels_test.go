package gpu_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lector/engine/gpu"
	"lector/metal"
	"lector/shaders"
)

// declaredKernels are the constants of type kernel[...] in this package's source.
func declaredKernels(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			x, ok := v.Type.(*ast.IndexExpr)
			if !ok {
				return true
			}
			if id, ok := x.X.(*ast.Ident); !ok || id.Name != "kernel" {
				return true
			}
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, text)
			return true
		})
	}
	return names
}

func TestEveryDeclaredKernelExists(t *testing.T) {
	d := openDevice(t)
	names := declaredKernels(t)
	if len(names) < 15 {
		t.Fatalf("found %d kernels only: %v", len(names), names)
	}
	kernels := map[string][]string{}
	for _, library := range shaders.Libraries() {
		text, err := shaders.Source(library)
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.Compile(metal.Source{Name: library, Text: text})
		if err != nil {
			t.Fatal(err)
		}
		kernels[library] = l.Kernels()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if library := shaders.Library(name); !slices.Contains(kernels[library], name) {
			t.Errorf("library %s has no kernel %s", library, name)
		}
	}
}

func TestPrepareCompilesEveryLibrary(t *testing.T) {
	f := newFake()
	b := openFake(t, f, gpu.Options{})
	if err := b.Prepare(); err != nil || !slices.Equal(f.compiled, shaders.Libraries()) {
		t.Errorf("compiled %v: %v", f.compiled, err)
	}
}
