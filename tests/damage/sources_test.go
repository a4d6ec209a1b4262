// Package damage_test puts damage on the stored bytes of every kind of object, in every form in which it can lie in a
// store, and wants an error that says which object, or no harm; and it finds the kinds and the forms in the sources, so
// that a new one without a case fails. Start reading at TestDamage, then kinds.
package damage_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// eachFile visits the shipped sources of the packages of cache.
func eachFile(t *testing.T, visit func(folder string, f *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..", "cache")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		visit(filepath.ToSlash(folder), f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every folder that a package of cache names has a row among the kinds, and every row is of a folder that is written.
func TestEveryKindIsHere(t *testing.T) {
	folder := regexp.MustCompile(`^/([a-z]+)/$`)
	found := map[string]bool{}
	eachFile(t, func(_ string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					if m := folder.FindStringSubmatch(text); m != nil {
						found[m[1]] = true
					}
				}
			}
			return true
		})
	})
	rows := append(folders(), "seals") // TestDamagedSeal
	slices.Sort(rows)
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, rows) {
		t.Errorf("the sources name the folders %v, and there are cases for %v", got, rows)
	}
	stored := map[string]bool{}
	w := newWorld(t, form{name: "plain"})
	for _, name := range w.inner.Names() {
		stored[strings.Split(name, "/")[1]] = true
	}
	if got := slices.Sorted(maps.Keys(stored)); !slices.Equal(got, folders()) {
		t.Errorf("the world has objects in %v, and there are cases for %v", got, folders())
	}
}

// folders are those that the kinds are in, in order.
func folders() []string {
	found := map[string]bool{}
	for kind := range kinds() {
		folder, _, _ := strings.Cut(kind, " ")
		found[folder] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// Every package of cache that puts objects is known: as a form of TestDamage, or with a test of its own.
func TestEveryFormIsHere(t *testing.T) {
	known := map[string]string{
		"compress":  "a form of TestDamage",
		"seal":      "a form of TestDamage",
		"archive":   "TestDamagedFile",
		"dir":       "keeps bytes as they are: tests/e2e damages its files",
		"s3":        "keeps bytes as they are",
		"local":     "TestDamagedCopy of cache/local",
		"cachetest": "stores of tests",
	}
	found := map[string]bool{}
	eachFile(t, func(folder string, f *ast.File) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Recv != nil && fn.Name.Name == "Put" && fn.Type.Params.NumFields() == 5 {
				found[folder] = true
			}
		}
	})
	for folder := range found {
		if known[folder] == "" {
			t.Errorf("cache/%s puts objects, and nothing says what damage to them does", folder)
		}
	}
	for folder := range known {
		if !found[folder] {
			t.Errorf("cache/%s puts no objects any more", folder)
		}
	}
}
