package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// build compiles a suite's tests.
func (s suite) build(folder string) error {
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", filepath.Join(folder, s.binary)}
	if len(s.overlay) > 0 {
		replace := map[string]string{}
		for from, to := range s.overlay {
			var err error
			if from, err = filepath.Abs(from); err != nil {
				return err
			}
			if replace[from], err = filepath.Abs(to); err != nil {
				return err
			}
		}
		text, err := json.Marshal(map[string]any{"Replace": replace})
		if err != nil {
			return err
		}
		path := filepath.Join(folder, s.binary+".overlay.json")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
		args = append(args, "-overlay", path)
	}
	return do("go", append(args, "./"+s.name)...)
}

// outcome is what a suite came to.
type outcome struct {
	suite                   suite
	tool                    string // that it ran under, or empty
	passed, failed, skipped []string
	reasons                 []string // of those skipped, and the last lines of a run that broke off
	broke                   error    // it did not run to its end
	spent                   time.Duration
	log                     []byte
}

// under names the checker, such as memcheck, or is empty.
func (o *outcome) under() string {
	words := strings.Fields(o.tool)
	if len(words) > 2 {
		return words[2]
	}
	return o.tool
}

func (o *outcome) ok() bool { return o.broke == nil && len(o.failed) == 0 }

var verdict = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+) `)

// run runs a suite in its package's folder.
func (s suite) run(from string, limit time.Duration, tool ...string) *outcome {
	o := &outcome{suite: s, tool: strings.Join(tool, " ")}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append(tool, filepath.Join(from, s.binary), "-test.v", "-ptx.cache="+filepath.Join(from, "ptx"))
	args = append(args, s.args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.name
	began := time.Now()
	log, err := cmd.CombinedOutput()
	o.spent, o.log = time.Since(began), log
	last := o.count(log)
	if err != nil && (len(o.failed) == 0 || ctx.Err() != nil) {
		o.broke = fmt.Errorf("%w after %v, last: %s", err, o.spent.Round(time.Second), last)
	}
	return o
}

// inShares runs a suite's tests in several processes at once, each test in one of them: a suite of small tests leaves most of
// a GPU and of its host idle.
func (s suite) inShares(from string, limit time.Duration) *outcome {
	began := time.Now()
	text, err := exec.Command(filepath.Join(from, s.binary), "-test.list", "^Test").Output()
	if err != nil {
		return &outcome{suite: s, broke: fmt.Errorf("list the tests: %w", err)}
	}
	shares := dealt(strings.Fields(string(text)), s.shares)
	parts := make([]*outcome, len(shares))
	var all sync.WaitGroup
	for i, names := range shares {
		part := s
		part.args = append(slices.Clone(s.args), "-test.run=^("+strings.Join(names, "|")+")$")
		all.Go(func() { parts[i] = part.run(from, limit) })
	}
	all.Wait()
	return joined(s, parts, time.Since(began))
}

// dealt gives every name to one of n shares in turn; none is empty.
func dealt(names []string, n int) [][]string {
	shares := make([][]string, min(n, len(names)))
	for i, name := range names {
		shares[i%n] = append(shares[i%n], name)
	}
	return shares
}

// joined is what the parts of a suite came to together.
func joined(s suite, parts []*outcome, spent time.Duration) *outcome {
	o := &outcome{suite: s, spent: spent}
	for _, p := range parts {
		o.passed, o.failed, o.skipped = append(o.passed, p.passed...), append(o.failed, p.failed...), append(o.skipped, p.skipped...)
		o.reasons, o.log = append(o.reasons, p.reasons...), append(o.log, p.log...)
		o.broke = errors.Join(o.broke, p.broke)
	}
	return o
}

// count reads the verdicts of top-level tests from a log, and returns the last other line.
func (o *outcome) count(log []byte) (other string) {
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := verdict.FindStringSubmatch(lines.Text())
		switch {
		case m == nil:
			other = lines.Text()
		case m[1] == "PASS":
			o.passed = append(o.passed, m[2])
		case m[1] == "FAIL":
			o.failed = append(o.failed, m[2])
		default:
			o.skipped = append(o.skipped, m[2])
			o.reasons = append(o.reasons, m[2]+": "+strings.TrimSpace(other))
		}
	}
	return other
}
