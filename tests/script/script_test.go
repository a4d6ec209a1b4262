package script_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expectations of cmp lines in testdata")

// binFolder holds the lector that TestMain builds: the commands are tested as a person runs them.
var binFolder string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (code int, err error) {
	if binFolder, err = os.MkdirTemp("", "lector-script-"); err != nil {
		return 0, fmt.Errorf("make a folder for the binary: %w", err)
	}
	defer func() { _ = os.RemoveAll(binFolder) }()
	build := exec.Command("go", "build", "-o", filepath.Join(binFolder, "lector"), "lector/cmd/lector")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build lector: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// Each file of testdata is one story of commands, with what they print and their exit codes.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", binFolder+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home")) // a data folder of its own
			fixtures, err := filepath.Abs("../fixtures")
			e.Setenv("FIXTURES", fixtures)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command and wants its exit code: "exits 2 lector ingest missing.txt".
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENT...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if exit, ok := err.(*exec.ExitError); ok {
		code = fmt.Sprint(exit.ExitCode())
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if code != args[0] {
		ts.Fatalf("%v exits with %s, want %s", args[1:], code, args[0])
	}
}
