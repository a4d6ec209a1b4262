package house_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lector/tests/house"
)

const root = "../.."

// platforms are those whose files the checks load: build constraints hide packages from one another.
func platforms() []house.Platform {
	return []house.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}}
}

func report(t *testing.T, found []house.Finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

func moduleName(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("go.mod names no module")
	}
	return string(m[1])
}

func readFiles(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := house.Files(root)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[name], err = os.ReadFile(filepath.Join(root, filepath.FromSlash(name))); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestImports(t *testing.T) {
	module := moduleName(t)
	for _, on := range platforms() {
		t.Run(on.OS, func(t *testing.T) {
			pkgs, err := house.List(root, on)
			if err != nil {
				t.Fatal(err)
			}
			report(t, house.CheckImports(module, pkgs, house.Edges(), house.Free()))
		})
	}
}

func TestSource(t *testing.T) {
	folders := map[string]map[string][]byte{}
	for name, text := range readFiles(t) {
		folder := path.Dir(name)
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "/testdata/") {
			continue
		}
		if folders[folder] == nil {
			folders[folder] = map[string][]byte{}
		}
		folders[folder][name] = text
	}
	used := map[string]bool{}
	for folder, files := range folders {
		s, err := house.ParseSource(folder, files)
		if err != nil {
			t.Error(err)
			continue
		}
		found, notes := house.CheckSource(s, house.Excused(), used)
		report(t, found)
		for _, n := range notes {
			t.Log("note:", n)
		}
	}
	for name := range house.Excused() {
		if !used[name] {
			t.Errorf("Excused lists %s, which breaks no limit: take the row away", name)
		}
	}
}

func TestFiles(t *testing.T) {
	for name, content := range readFiles(t) {
		report(t, house.CheckFile(name, content))
	}
}

func TestLinks(t *testing.T) {
	exists := func(p string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(p)))
		return err == nil
	}
	for name, content := range readFiles(t) {
		if strings.HasSuffix(name, ".md") {
			report(t, house.CheckLinks(name, content, exists))
		}
	}
}
