package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// module is cut from package names, so that what is printed and what is allowed reads as a path of the tree.
const module = "lector/"

// event is one line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Output     string
	Elapsed    float64
}

// name is a test, or a package as a whole where test is empty.
type name struct{ pkg, test string }

func (n name) String() string { return strings.TrimSpace(n.pkg + " " + n.test) }

// top says that the name is a test of its own and not part of another.
func (n name) top() bool { return n.test != "" && !strings.Contains(n.test, "/") }

// tally is what a stream said.
type tally struct {
	outcome map[name]string // "pass", "fail" or "skip", tests that did not end are missing
	started map[name]bool
	output  map[name]*strings.Builder
	build   strings.Builder // what the compiler said
}

// read collects a stream, and shows each package as it ends.
func read(in io.Reader, out io.Writer) (*tally, error) {
	t := &tally{outcome: map[name]string{}, started: map[name]bool{}, output: map[name]*strings.Builder{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			t.take(line, out)
		}
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read test events: %w", err)
		}
	}
}

// take notes one line. What is no event, such as a message of the go command, is shown as it is.
func (t *tally) take(line []byte, out io.Writer) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		t.build.Write(line)
		return
	}
	n := name{strings.TrimPrefix(e.Package, module), e.Test}
	switch e.Action {
	case "build-output":
		t.build.WriteString(e.Output)
	case "build-fail", "start", "pause", "cont", "bench":
	case "run":
		t.started[n] = true
	case "output":
		if t.output[n] == nil {
			t.output[n] = &strings.Builder{}
		}
		t.output[n].WriteString(e.Output)
	case "pass", "fail", "skip":
		t.outcome[n] = e.Action
		if n.test == "" && e.Action != "skip" {
			fmt.Fprintf(out, "%s %7.1fs  %s\n", e.Action, e.Elapsed, n.pkg)
		}
	}
}

// judge prints what is wrong and says whether nothing is.
func (t *tally) judge(out io.Writer, allowed []allowance) bool {
	good := true
	for _, n := range t.failures() {
		good = false
		fmt.Fprintf(out, "\n--- FAIL %s\n", n)
		if t.output[n] != nil {
			fmt.Fprintln(out, strings.TrimRight(t.output[n].String(), "\n"))
		}
	}
	if !good && t.build.Len() > 0 {
		fmt.Fprintln(out, t.build.String())
	}
	for _, n := range t.names("skip") {
		switch reason, ok := allows(allowed, n); {
		case n.test == "": // a package without tests
		case ok:
			fmt.Fprintf(out, "skipped %s: %s\n", n, reason)
		default:
			good = false
			fmt.Fprintf(out, "\n--- SKIP %s: not in tests/cmd/account/allowed.txt\n%s", n, t.text(n))
		}
	}
	if len(t.outcome) == 0 {
		good = false
		fmt.Fprintf(out, "no test ran\n%s", t.build.String())
	}
	return good
}

func (t *tally) text(n name) string {
	if t.output[n] == nil {
		return ""
	}
	return t.output[n].String()
}

// names lists what ended so, in order.
func (t *tally) names(outcome string) []name {
	var names []name
	for n, o := range t.outcome {
		if o == outcome {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b name) int { return strings.Compare(a.String(), b.String()) })
	return names
}

// failures lists what failed, and what began and never ended: a panic or a time limit.
func (t *tally) failures() []name {
	failed := t.names("fail")
	for n := range t.started {
		if t.outcome[n] == "" {
			failed = append(failed, n)
		}
	}
	slices.SortFunc(failed, func(a, b name) int { return strings.Compare(a.String(), b.String()) })
	return failed
}

// counts sums top-level tests. A package that failed beside its tests (it did not build, it exited) is one failure.
func (t *tally) counts() counts {
	var c counts
	broken := map[string]bool{}
	for n, o := range t.outcome {
		if n.top() {
			switch o {
			case "pass":
				c.Passed++
			case "skip":
				c.Skipped++
			}
		}
	}
	for _, n := range t.failures() {
		if n.top() {
			c.Failed++
			broken[n.pkg] = true
		}
	}
	for _, n := range t.failures() {
		if n.test == "" && !broken[n.pkg] {
			c.Failed++
		}
	}
	return c
}

// counts is the last line.
type counts struct{ Passed, Failed, Skipped int }

// String is the line that a test run ends with.
func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.Passed, c.Failed, c.Skipped)
}

// addTotal adds c to the counts in a file, which need not exist yet.
func addTotal(path string, c counts) error {
	var before counts
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read counts: %w", err)
	}
	if len(text) > 0 {
		if _, err := fmt.Sscanf(string(text), "%d passed, %d failed, %d skipped", &before.Passed, &before.Failed, &before.Skipped); err != nil {
			return fmt.Errorf("read counts of %s: %w", path, err)
		}
	}
	sum := counts{before.Passed + c.Passed, before.Failed + c.Failed, before.Skipped + c.Skipped}
	if err := os.WriteFile(path, []byte(sum.String()+"\n"), 0o644); err != nil {
		return fmt.Errorf("write counts: %w", err)
	}
	return nil
}

// allowance lets tests skip.
type allowance struct{ pkg, test, reason string }

// parseAllowed reads lines of "package test # reason".
func parseAllowed(text string) ([]allowance, error) {
	var rows []allowance
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, reason, _ := strings.Cut(line, "#")
		fields, reason := strings.Fields(what), strings.TrimSpace(reason)
		if len(fields) != 2 || reason == "" {
			return nil, fmt.Errorf("allowed.txt: %q is not \"package test # reason\"", line)
		}
		rows = append(rows, allowance{fields[0], fields[1], reason})
	}
	return rows, nil
}

// allows finds the reason for which a test, or the test that it is part of, may skip.
func allows(rows []allowance, n name) (string, bool) {
	for _, a := range rows {
		prefix, open := strings.CutSuffix(a.test, "*")
		if a.pkg == n.pkg && (n.test == a.test || strings.HasPrefix(n.test, a.test+"/") || open && strings.HasPrefix(n.test, prefix)) {
			return a.reason, true
		}
	}
	return "", false
}
