package house_test

import (
	"fmt"
	"strings"
	"testing"

	"lector/tests/house"
)

// check parses one folder of synthetic source and returns the findings as text.
func check(t *testing.T, folder string, files map[string]string, excused map[string]string) (found, notes string) {
	t.Helper()
	texts := map[string][]byte{}
	for name, text := range files {
		texts[folder+"/"+name] = []byte(text)
	}
	s, err := house.ParseSource(folder, texts)
	if err != nil {
		t.Fatal(err)
	}
	f, n := house.CheckSource(s, excused, map[string]bool{})
	return fmt.Sprintln(f), fmt.Sprintln(n)
}

const clean = "// Package a is a test.\npackage a\n\n"

func lines(n int) string { return strings.Repeat("\t_ = 1\n", n) }

func TestCheckSource(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		say  string // in the one finding; nothing: no finding
	}{
		"nothing wrong":            {"// F is.\nfunc F() {}\n", ""},
		"bare function":            {"func F() {}\n", "F has no comment"},
		"bare type":                {"type T int\n", "T has no comment"},
		"bare method":              {"// T is.\ntype T int\n\nfunc (t *T) Do() {}\n", "Do has no comment"},
		"method of a generic type": {"// T is.\ntype T[K any] int\n\nfunc (t *T[K]) Do() {}\n", "Do has no comment"},
		"String needs none":        {"// T is.\ntype T int\n\nfunc (t T) String() string { return \"\" }\n", ""},
		"unexported type":          {"type t int\n\nfunc (t) Do() {}\n", ""},
		"bare constant":            {"const C = 1\n", "C has no comment"},
		"constants under one":      {"// These are.\nconst (\n\tC = 1\n\tD = 2\n)\n", ""},
		"constants of a type":      {"// T is.\ntype T int\n\nconst (\n\tC T = iota\n\tD\n)\n", ""},
		"untyped in such a group":  {"// T is.\ntype T int\n\nconst (\n\tC T = iota\n\tD = 7\n)\n", "D has no comment"},
		"environment":              {"import \"os\"\n\nfunc f() string { return os.Getenv(\"A\") }\n", "reads the environment"},
		"environment, renamed":     {"import sys \"os\"\n\nfunc f() { sys.LookupEnv(\"A\") }\n", "reads the environment"},
		"not the environment":      {"import \"os\"\n\nfunc f() { os.Getpid() }\n", ""},
		"six parameters":           {"func f(a, b, c int, d, e, f string) {}\n", "6 parameters"},
		"a context is free":        {"import \"context\"\n\nfunc f(ctx context.Context, a, b, c int, d, e string) {}\n", ""},
		"three results":            {"func f() (a, b, c int) { return 0, 0, 0 }\n", "3 results"},
		"two and an error":         {"func f() (a, b int, err error) { return 0, 0, nil }\n", ""},
		"long function":            {"func f() {\n" + lines(99) + "}\n", "101 lines"},
		"hundred lines":            {"func f() {\n" + lines(98) + "}\n", ""},
		"long file":                {"func f() {\n" + lines(20) + "}\n" + strings.Repeat("\n", 480), "lines, more than 500"},
		"counter":                  {"var n = 0\n\nfunc f() { n++ }\n", "n is written after"},
		"assigned":                 {"var n = 0\n\nfunc f() { n = 2 }\n", "n is written after"},
		"element assigned":         {"var m = map[int]int{1: 2}\n\nfunc f() { m[1] = 2 }\n", "m is written after"},
		"element deleted":          {"var m = map[int]int{1: 2}\n\nfunc f() { delete(m, 1) }\n", "m is written after"},
		"address taken":            {"var n = [4]int{}\n\nfunc f() *int { return &n[1] }\n", "n is written after"},
		"shadowed":                 {"var n = 1\n\nfunc f() int { n := 2; n++; return n }\n", ""},
		"no value":                 {"var n int\n", "without a value"},
		"lock":                     {"import \"sync\"\n\nvar l = sync.Mutex{}\n", "is a sync.Mutex"},
		"pointer to a pool":        {"import \"sync\"\n\nvar l = &sync.Pool{}\n", "is a sync.Pool"},
		"map to fill":              {"var m = make(map[int]int)\n", "is made empty"},
		"table":                    {"var m = map[int]int{1: 2}\n\nfunc f() int { return m[1] }\n", ""},
		"error":                    {"import \"errors\"\n\n// ErrA is.\nvar ErrA = errors.New(\"a\")\n", ""},
		"embedded":                 {"import _ \"embed\"\n\n//go:embed a.txt\nvar text string\n", ""},
		"interface check":          {"var _ error = (*t)(nil)\n\ntype t struct{}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found, _ := check(t, "a", map[string]string{"a.go": clean + c.body}, nil)
			if c.say == "" && found != "[]\n" || !strings.Contains(found, c.say) || strings.Count(found, "reason:") > 1 {
				t.Errorf("want a finding with %q alone, got %s", c.say, found)
			}
		})
	}
}

func TestCheckSourceAcrossFiles(t *testing.T) {
	for name, c := range map[string]struct {
		folder string
		files  map[string]string
		say    string
	}{
		"no package comment":          {"a", map[string]string{"a.go": "package a\n"}, "0 package comments"},
		"two package comments":        {"a", map[string]string{"a.go": clean, "b.go": clean}, "2 package comments"},
		"not go doc's form":           {"a", map[string]string{"a.go": "// All about a.\npackage a\n"}, "does not begin with"},
		"written from the next file":  {"a", map[string]string{"a.go": clean + "var n = 0\n", "b.go": "package a\n\nfunc f() { n = 1 }\n"}, "n is written"},
		"tests may read the setting":  {"a", map[string]string{"a.go": clean, "a_test.go": "package a\n\nimport \"os\"\n\nvar n = os.Getenv(\"A\")\n"}, ""},
		"cmd may read the setting":    {"cmd/a", map[string]string{"a.go": clean + "import \"os\"\n\nfunc f() string { return os.Getenv(\"A\") }\n"}, ""},
		"a folder like cmd may not":   {"cmdx", map[string]string{"a.go": clean + "import \"os\"\n\nfunc f() string { return os.Getenv(\"A\") }\n"}, "reads the environment"},
		"long functions of tests too": {"a", map[string]string{"a.go": clean, "a_test.go": "package a\n\nfunc f() {\n" + lines(100) + "}\n"}, "102 lines"},
		"wide signatures of tests":    {"a", map[string]string{"a.go": clean, "a_test.go": "package a\n\nfunc f(a, b, c, d, e, f int) {}\n"}, ""},
		"only tests":                  {"a", map[string]string{"a_test.go": "package a\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found, _ := check(t, c.folder, c.files, nil)
			if c.say == "" && found != "[]\n" || !strings.Contains(found, c.say) {
				t.Errorf("want a finding with %q, got %s", c.say, found)
			}
		})
	}
}

func TestExcuses(t *testing.T) {
	long := map[string]string{"a.go": clean + "type t int\n\nfunc (t) f() {\n" + lines(120) + "}\n\nvar n int\n"}
	if found, _ := check(t, "a", long, map[string]string{"length a.t.f": "a table", "variable a.n": "set by assembly"}); found != "[]\n" {
		t.Errorf("excused, and still found: %s", found)
	}
	huge := map[string]string{"a.go": clean + strings.Repeat("\n", 900)}
	if found, _ := check(t, "a", huge, map[string]string{"length a/a.go": "no reason is good enough"}); !strings.Contains(found, "lines, more than") {
		t.Errorf("a file past the hard limit was excused: %s", found)
	}
	if _, notes := check(t, "a", map[string]string{"a.go": clean + "func f() {\n" + lines(70) + "}\n"}, nil); !strings.Contains(notes, "72 lines") {
		t.Errorf("a function past the soft limit left no note: %s", notes)
	}
}

func TestCheckFile(t *testing.T) {
	big := make([]byte, house.MaxFileBytes+1)
	for name, c := range map[string]struct {
		file, content, say string
	}{
		"a path of one machine":      {"a.md", "see " + "/" + "home/someone/x", "a.md:1: absolute path"},
		"second line":                {"a.sh", "x\ncd \"" + "/" + "work/main\"", "a.sh:2: absolute path"},
		"part of another path":       {"a.md", "see net" + "/" + "work/x and ./" + "home/x and {a}" + "/" + "root/x", ""},
		"not text":                   {"a.bin", "\x00 " + "/" + "home/someone", ""},
		"large":                      {"cache/a.bin", string(big), "more than"},
		"large, where it may be":     {"tests/fixtures/a.bin", string(big), ""},
		"large, in a similar folder": {"tests/fixtures2/a.bin", string(big), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			found := fmt.Sprintln(house.CheckFile(c.file, []byte(c.content)))
			if c.say == "" && found != "[]\n" || !strings.Contains(found, c.say) {
				t.Errorf("want a finding with %q, got %s", c.say, found)
			}
		})
	}
}

func TestCheckLinks(t *testing.T) {
	exists := func(p string) bool { return p == "cache/format.md" || p == "README.md" || p == "cache" }
	for name, c := range map[string]struct {
		file, content, say string
	}{
		"found":                    {"README.md", "[x](cache/format.md) `cache/` [y](https://example.com)", ""},
		"beside the file":          {"cache/README.md", "[x](format.md#tables) [up](../README.md)", ""},
		"missing":                  {"README.md", "[x](cache/forma.md)", "names cache/forma.md"},
		"missing in backticks":     {"README.md", "read `worker/plan.go`", "names worker/plan.go"},
		"backticks of other files": {"cache/README.md", "read `worker/plan.go`", ""},
		"commands are no paths":    {"README.md", "run `lector demo` or `go run ./cmd/lector`", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := fmt.Sprintln(house.CheckLinks(c.file, []byte(c.content), exists))
			if c.say == "" && found != "[]\n" || !strings.Contains(found, c.say) {
				t.Errorf("want a finding with %q, got %s", c.say, found)
			}
		})
	}
}
