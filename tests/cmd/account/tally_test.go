package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	passes  = `{"Action":"run","Package":"lector/a","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"lector/a","Test":"TestA"}` + "\n"
	inside  = `{"Action":"pass","Package":"lector/a","Test":"TestA/sub"}` + "\n"
	ends    = `{"Action":"pass","Package":"lector/a","Elapsed":1.5}` + "\n"
	skips   = `{"Action":"output","Package":"lector/a","Test":"TestS","Output":"no device\n"}` + "\n" + `{"Action":"skip","Package":"lector/a","Test":"TestS"}` + "\n"
	subskip = `{"Action":"skip","Package":"lector/a","Test":"TestA/sub"}` + "\n"
	fails   = `{"Action":"output","Package":"lector/a","Test":"TestF","Output":"got 1\n"}` + "\n" + `{"Action":"fail","Package":"lector/a","Test":"TestF"}` + "\n" + `{"Action":"fail","Package":"lector/a"}` + "\n"
	hangs   = `{"Action":"run","Package":"lector/a","Test":"TestH"}` + "\n" + `{"Action":"fail","Package":"lector/a"}` + "\n"
	broken  = `{"ImportPath":"lector/b","Action":"build-output","Output":"b.go:1: undefined: x\n"}` + "\n" + `{"Action":"fail","Package":"lector/b"}` + "\n"
	empty   = `{"Action":"skip","Package":"lector/c"}` + "\n"
)

func TestRunCountsAndJudges(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		good   bool
		say    []string
	}{
		"all pass":            {passes + inside + ends + empty, true, []string{"1 passed, 0 failed, 0 skipped"}},
		"skip without a row":  {passes + skips + ends, false, []string{"1 passed, 0 failed, 1 skipped", "no device", "allowed.txt"}},
		"part of a test":      {passes + subskip + ends, false, []string{"--- SKIP a TestA/sub"}},
		"a failure":           {passes + fails, false, []string{"1 passed, 1 failed, 0 skipped", "--- FAIL a TestF", "got 1"}},
		"never ended":         {passes + hangs, false, []string{"1 passed, 1 failed, 0 skipped", "--- FAIL a TestH"}},
		"did not build":       {passes + ends + broken, false, []string{"1 passed, 1 failed, 0 skipped", "undefined: x"}},
		"nothing":             {"", false, []string{"no test ran", "0 passed, 0 failed, 0 skipped"}},
		"not a stream at all": {"go: cannot find main module\n", false, []string{"cannot find main module"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			good, err := run(strings.NewReader(c.stream), &out, "")
			if err != nil || good != c.good {
				t.Errorf("good %v, error %v; want good %v\n%s", good, err, c.good, out.String())
			}
			for _, say := range c.say {
				if !strings.Contains(out.String(), say) {
					t.Errorf("want %q in\n%s", say, out.String())
				}
			}
		})
	}
}

func TestRunAddsUp(t *testing.T) {
	total := filepath.Join(t.TempDir(), "total")
	for range 2 {
		if _, err := run(strings.NewReader(passes+ends), &strings.Builder{}, total); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(total); err != nil || string(text) != "2 passed, 0 failed, 0 skipped\n" {
		t.Errorf("total is %q, %v", text, err)
	}
}

func TestAllowed(t *testing.T) {
	rows, err := parseAllowed("# note\n\na TestS # needs a GPU\nb TestMetal* # needs a Mac\n")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[name]bool{
		{"a", "TestS"}: true, {"a", "TestS/sub"}: true, {"b", "TestMetalAdd/x"}: true,
		{"a", "TestSx"}: false, {"b", "TestS"}: false, {"c", "TestMetalAdd"}: false,
	} {
		if _, got := allows(rows, n); got != want {
			t.Errorf("%s allowed: %v, want %v", n, got, want)
		}
	}
	for _, bad := range []string{"a TestS", "a # reason", "a b c # reason", "a TestS #"} {
		if _, err := parseAllowed(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := parseAllowed(allowedText); err != nil {
		t.Error(err)
	}
}
