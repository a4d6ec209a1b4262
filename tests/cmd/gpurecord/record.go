package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"lector/metal"
	"lector/metal/ptx"
)

type runOptions struct {
	from, out string
	limit     time.Duration
	quick     bool
	profile   bool
	sanitize  bool
}

// run runs everything and writes the record.
func run(o runOptions) error {
	d, err := ptx.Open(ptx.Options{Cache: filepath.Join(o.from, "ptx")})
	if err != nil {
		return err
	}
	name := d.Properties().Name
	ctx := context.Background()
	figures, measured := measure(d)
	profileTo := ""
	if o.profile {
		profileTo = o.out
	}
	found, err := engineFigures(ctx, d, limits{rateOf(figures, copyFigure), rateOf(figures, hostCopyFigure)}, profileTo)
	figures, measured = append(figures, found...), errors.Join(measured, err)
	claims := checks(ctx, d, withoutBarrier)
	if err := d.Close(); err != nil {
		return err
	}
	var outcomes []*outcome
	for _, s := range suites() {
		if o.quick {
			break
		}
		outcomes = append(outcomes, s.inShares(o.from, o.limit))
	}
	if o.sanitize {
		outcomes = append(outcomes, sanitized(o)...)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	base := time.Now().UTC().Format("2006-01-02") + "-" + strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-"), "-")
	text := contents{name, commit(o.from), driverVersion(), figures, measured, claims, outcomes}.String()
	fmt.Print(text)
	if err := os.WriteFile(filepath.Join(o.out, base+".md"), []byte(text), 0o644); err != nil {
		return err
	}
	bad := measured
	for _, c := range claims {
		if c.err != nil {
			bad = errors.Join(bad, fmt.Errorf("%s: %w", c.name, c.err))
		}
	}
	for _, x := range outcomes {
		if x.ok() {
			continue
		}
		bad = errors.Join(bad, fmt.Errorf("%s %s failed", x.under(), x.suite.name))
		log := strings.Trim(strings.ReplaceAll(base+" "+x.under()+" "+x.suite.binary, " ", "-"), "-") + ".log"
		if err := os.WriteFile(filepath.Join(o.out, log), x.log, 0o644); err != nil {
			return err
		}
	}
	return bad
}

// sanitized runs the device's own suite under the checkers of the CUDA toolkit, where they are.
func sanitized(o runOptions) []*outcome {
	path, err := exec.LookPath("compute-sanitizer")
	if err != nil {
		return []*outcome{{suite: suite{name: "metal/ptx"}, tool: "compute-sanitizer", broke: err}}
	}
	var all []*outcome
	for _, tool := range []string{"memcheck", "racecheck"} {
		s := suites()[0]
		s.args = []string{"-test.run=TestConformance|TestMatrices|TestLanes|TestThreadgroupArguments|TestRunsThatComeAgain|TestCopies"}
		all = append(all, s.run(o.from, o.limit, path, "--tool", tool, "--error-exitcode", "9"))
	}
	return all
}

// contents is what a record says.
type contents struct {
	device, commit, driver string
	figures                []figure
	measured               error // why figures are missing
	checks                 []check
	outcomes               []*outcome
}

// String is the record as Markdown.
func (c contents) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, %s\n\n", c.device, time.Now().UTC().Format("2006-01-02"))
	fmt.Fprintf(&b, "- commit: %s\n- driver: %s\n- written by: tests/cmd/gpurecord\n\n## Suites\n\n", c.commit, c.driver)
	b.WriteString("| suite | under | passed | failed | skipped | time |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, o := range c.outcomes {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %v |\n", o.suite.name, o.under(), len(o.passed), len(o.failed), len(o.skipped), o.spent.Round(time.Second))
	}
	b.WriteString("\n")
	for _, o := range c.outcomes {
		for _, name := range o.failed {
			fmt.Fprintf(&b, "- %s: %s failed\n", o.suite.name, name)
		}
		for _, reason := range o.reasons {
			fmt.Fprintf(&b, "- %s: left out %s\n", o.suite.name, reason)
		}
		if o.broke != nil {
			fmt.Fprintf(&b, "- %s %s: %v\n", o.under(), o.suite.name, o.broke)
		}
	}
	b.WriteString("\n## Checks\n\n| what | holds | seen |\n| --- | --- | --- |\n")
	for _, x := range c.checks {
		holds := "yes"
		if x.err != nil {
			holds = "no: " + strings.ReplaceAll(x.err.Error(), "\n", "; ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", x.name, holds, x.note)
	}
	b.WriteString("\n## Figures\n\n| what | figure | note |\n| --- | --- | --- |\n")
	for _, f := range c.figures {
		fmt.Fprintf(&b, "| %s | %.4g %s | %s |\n", f.name, f.value, f.unit, f.note)
	}
	if c.measured != nil {
		fmt.Fprintf(&b, "\nMeasuring failed: %v\n", c.measured)
	}
	return b.String()
}

// commit is what the archive was built from.
func commit(from string) string {
	text, err := os.ReadFile(filepath.Join(from, commitFile))
	if err != nil {
		return "unknown"
	}
	return string(text)
}

// driverVersion is what the driver's own tool says.
func driverVersion() string {
	out, err := exec.Command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").Output()
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return first
}

// lease is what measuring makes and gives back.
type lease struct {
	device metal.Device
	queue  metal.Queue
	held   []interface{ Close() error }
}

func (l *lease) close() error {
	var errs []error
	for i := len(l.held) - 1; i >= 0; i-- {
		errs = append(errs, l.held[i].Close())
	}
	l.held = nil
	return errors.Join(errs...)
}
