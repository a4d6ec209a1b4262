package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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
