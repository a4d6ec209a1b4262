// Command gpurecord runs what needs an NVIDIA GPU, and writes a dated record of it for tests/records.
//
//	gpurecord build            makes .build/gpu.tar.gz: this command, the test binaries, and the kernels as PTX, for a
//	                           machine with neither Go nor clang; run it at the top of the repository
//	gpurecord run -out DIR     runs the suites and measures, from the folder that the archive was unpacked to; also at
//	                           the top of the repository, since tests read their fixtures
//	gpurecord time             shows figures of kernels and of decode, and writes nothing
//	gpurecord table            writes what the records say into the README
//
// The record has device, driver, commit, every suite's counts with the tests that failed or were left out, and the
// figures with what limits them. A suite that fails makes the exit status 1, after the record is written.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gpurecord:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		return errors.New("want build, run, time or table")
	}
	if args[0] == "time" {
		return timeFlags(args[1:])
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	out := flags.String("out", "tests/records", "folder of the record")
	limit := flags.Duration("limit", 5*time.Minute, "of one suite")
	quick := flags.Bool("quick", false, "leave out the suites of tests")
	profile := flags.Bool("profile", false, "write profiles of the host during decode beside the record: cpu.pprof, block.pprof")
	sanitize := flags.Bool("sanitize", false, "run the device's suite under compute-sanitizer as well")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "build":
		return build(filepath.Join(".build", "gpu"))
	case "table":
		return writeTable("README.md", *out)
	case "run":
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return run(runOptions{from: filepath.Dir(self), out: *out, limit: *limit, quick: *quick, profile: *profile, sanitize: *sanitize})
	}
	return fmt.Errorf("no command %q: build, run, time or table", args[0])
}

// suite is a package's tests as a binary.
type suite struct {
	name    string // the package's folder
	binary  string
	overlay map[string]string // files of the package that others stand for
	args    []string          // besides the usual
	shares  int               // processes that run its tests at once
}

// suites lists what runs on a GPU. The operations' tests open their device in one file, for which another stands.
func suites() []suite {
	return []suite{
		{name: "metal/ptx", binary: "ptx.test", shares: 1},
		{name: "engine/gpu", binary: "gpu.test", overlay: map[string]string{
			"engine/gpu/device_test.go": "tests/cmd/gpurecord/overlay/device_test.go.txt",
		}, shares: 6},
	}
}

// build makes the archive. Its parts stay in the folder, which it empties first.
func build(folder string) error {
	if err := os.RemoveAll(folder); err != nil { // kernels of other sources would travel along
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, s := range suites() {
		if err := s.build(folder); err != nil {
			return fmt.Errorf("build the tests of %s: %w", s.name, err)
		}
	}
	if err := noteCommit(filepath.Join(folder, commitFile)); err != nil {
		return err
	}
	if err := do("go", "build", "-ldflags=-s -w", "-o", filepath.Join(folder, "gpurecord"), "./tests/cmd/gpurecord"); err != nil {
		return err
	}
	if err := translate(filepath.Join(folder, "ptx")); err != nil {
		return err
	}
	binary, err := filepath.Abs(filepath.Join(folder, "ptx.test"))
	if err != nil {
		return err
	}
	if err := do(binary, "-test.run=^TestTranslate$", "-ptx.cache="+filepath.Join(folder, "ptx")); err != nil {
		return err
	}
	return do("tar", "-C", filepath.Dir(folder), "-czf", folder+".tar.gz", filepath.Base(folder))
}

// commitFile says what the archive was built from.
const commitFile = "commit"

func noteCommit(path string) error {
	text, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("name the commit: %w", err)
	}
	changes, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("look for changes: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(changes) > 0 {
		text = append(text, ", with changes"...)
	}
	return os.WriteFile(path, text, 0o644)
}

// do runs a command whose output is ours. Programs are built without cgo, as the fleet's are.
func do(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	return nil
}
