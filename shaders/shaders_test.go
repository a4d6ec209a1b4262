package shaders_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lector/metal"
	"lector/metal/soft"
	"lector/shaders"
	"lector/shaders/params"
)

// headers are the headers with what is generated from them.
func headers() map[string][2]string {
	return map[string][2]string{
		"params.h":        {"params_gen.go", "params"},
		"params_blocks.h": {"params_blocks_gen.go", "blocks"},
	}
}

func parse(t *testing.T, header string) *params.Header {
	t.Helper()
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	h, err := params.Parse(header, string(text))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestGeneratedCodeIsFresh(t *testing.T) {
	for header, out := range headers() {
		want, err := parse(t, header).Go("shaders", out[1])
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(out[0])
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is stale: run go generate ./shaders", out[0])
		}
	}
}

// The layout of the Go structs is the header's: every field at the sum of the sizes before it.
func TestLayoutMatchesTheHeader(t *testing.T) {
	kinds := goStructs()
	for header := range headers() {
		for _, s := range parse(t, header).Structs {
			kind := kinds[s.Name]
			if kind == nil {
				t.Errorf("%s declares %s, Go has no such struct", header, s.Name)
				continue
			}
			if int(kind.Size()) != s.Bytes() {
				t.Errorf("%s has %d bytes in Go, %d in the header", s.Name, kind.Size(), s.Bytes())
			}
			at := 0
			for _, f := range s.Fields {
				field, ok := kind.FieldByName(params.GoName(f.Name))
				if !ok || int(field.Offset) != at || int(field.Type.Size()) != f.Bytes() {
					t.Errorf("%s.%s: Go has it at %d with %d bytes, the header at %d with %d", s.Name, f.Name, field.Offset, field.Type.Size(), at, f.Bytes())
				}
				at += f.Bytes()
			}
			delete(kinds, s.Name)
		}
	}
	for name := range kinds {
		t.Errorf("no header declares %s", name)
	}
}

func goStructs() map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, v := range shaders.Structs() {
		all[reflect.TypeOf(v).Name()] = reflect.TypeOf(v)
	}
	return all
}

// Every kernel has a comment that says what it computes.
func TestKernelsAreDescribed(t *testing.T) {
	for _, library := range shaders.Libraries() {
		text, err := shaders.Source(library)
		if err != nil {
			t.Fatal(err)
		}
		lines, found := strings.Split(text, "\n"), 0
		for i, line := range lines {
			if _, head, bounded := strings.Cut(line, ")]] "); bounded {
				line = head
			}
			if !strings.HasPrefix(line, "kernel void") {
				continue
			}
			found++
			above := lines[i-1]
			if strings.HasPrefix(above, "template <") {
				above = lines[i-2]
			}
			if !strings.HasPrefix(above, "//") {
				t.Errorf("%s: no comment says what it computes: %s", library, line)
			}
		}
		if found == 0 {
			t.Errorf("library %s has no kernels", library)
		}
	}
}

func TestUnknownLibrary(t *testing.T) {
	if _, err := shaders.Source("nothing"); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("an unknown library: %v", err)
	}
}

// The strict build keeps address spaces apart, and looks at every kernel and template.
func TestStrictBuild(t *testing.T) {
	for _, library := range shaders.Libraries() {
		t.Run(library, func(t *testing.T) {
			text, err := shaders.Source(library)
			if err != nil {
				t.Fatal(err)
			}
			err = soft.Check(metal.Source{Name: library, Text: text})
			if errors.Is(err, metal.ErrUnavailable) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// A kernel's name is block_verb, where the block is its library: so a name is enough to find it.
func TestKernelsAreNamedByTheirBlock(t *testing.T) {
	d, err := soft.Open(soft.Options{Cache: filepath.Join(os.TempDir(), "lector-soft")})
	if errors.Is(err, metal.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	name := regexp.MustCompile(`^[a-z]+(_[a-z0-9]+)+$`)
	var all []string
	for _, library := range shaders.Libraries() {
		text, err := shaders.Source(library)
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.Compile(metal.Source{Name: library, Text: text})
		if err != nil {
			t.Errorf("%s: %v", library, err)
			continue
		}
		all = append(all, l.Kernels()...)
		for _, k := range l.Kernels() {
			if !name.MatchString(k) || shaders.Library(k) != library {
				t.Errorf("kernel %s of library %s: its name is not block_verb", k, library)
			}
		}
		if err := l.Close(); err != nil {
			t.Errorf("close %s: %v", library, err)
		}
	}
	if slices.Sort(all); !slices.Equal(all, shaders.Kernels()) {
		t.Errorf("compiled are %q, listed %q", all, shaders.Kernels())
	}
}

// README.md names every kernel, and none that is not there.
func TestReadmeNamesEveryKernel(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z]+_[a-z0-9_]+)`").FindAllStringSubmatch(string(text), -1) {
		if slices.Contains(shaders.Libraries(), shaders.Library(m[1])) {
			named[m[1]] = true
		}
	}
	for _, k := range shaders.Kernels() {
		if !named[k] {
			t.Errorf("README.md does not name %s", k)
		}
		delete(named, k)
	}
	for k := range named {
		t.Errorf("README.md names %s, which is no kernel", k)
	}
}

// A compiler whose layout differs refuses the text.
func TestAnotherLayoutDoesNotCompile(t *testing.T) {
	text, err := shaders.Source("hyper")
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(text, "  uint32_t streams;", "  uint32_t streams; uint32_t more;", 1)
	if wrong == text {
		t.Fatal("the struct was not found")
	}
	err = soft.Check(metal.Source{Name: "hyper", Text: wrong})
	if errors.Is(err, metal.ErrUnavailable) {
		t.Skip(err)
	}
	if err == nil || !strings.Contains(err.Error(), "StreamParams has another layout") {
		t.Errorf("a struct with a field more: %v", err)
	}
}
