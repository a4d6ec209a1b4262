package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lector/deploy"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares text with a file of testdata, which -update rewrites. The files are this program's own words, to be
// read like code when they change.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s holds\n%s\nand it is now\n%s", path, want, text)
	}
}

// What is written and run on each system, for a user and for the machine.
func TestServicePlans(t *testing.T) {
	args := []string{"worker", "--nats", "nats://queue.example:4222", "--store", "s3://bucket?region=eu-north-1", "--metrics", "127.0.0.1:9464"}
	for _, system := range []string{"linux", "darwin"} {
		for _, machine := range []bool{false, true} {
			name := "service_" + system + map[bool]string{false: "_user", true: "_system"}[machine] + ".golden"
			t.Run(name, func(t *testing.T) {
				w := where{system: system, home: "/srv/ada", config: "/srv/ada/.config", uid: "501", program: "/usr/local/bin/lector", folder: "/srv/models"}
				p, err := w.plan(deploy.Service{
					Program: w.program, Arguments: args, Folder: w.folder, System: machine, Variables: []deploy.Variable{{Name: "AWS_PROFILE", Value: "readers & co"}},
				})
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				a := &app{streams: streams{out: &out, err: &out}}
				out.WriteString("install:\n")
				if err := a.carryOut(t.Context(), p.install, true); err != nil {
					t.Fatal(err)
				}
				out.WriteString("\nuninstall:\n")
				if err := a.carryOut(t.Context(), p.uninstall, true); err != nil {
					t.Fatal(err)
				}
				golden(t, name, out.String())
			})
		}
	}
	if _, err := (where{system: "plan9"}).plan(deploy.Service{Program: "/p"}); err == nil || !strings.Contains(err.Error(), "plan9") {
		t.Errorf("%v", err)
	}
}

// Installing writes the unit and runs the steps; uninstalling takes it away. The system's tools are played by a script.
func TestServiceSteps(t *testing.T) {
	bin, home := t.TempDir(), t.TempDir()
	said := filepath.Join(bin, "said")
	script := "#!/bin/sh\necho $(basename $0) \"$@\" >>" + said + "\n"
	for _, tool := range []string{"systemctl", "launchctl"} {
		if err := os.WriteFile(filepath.Join(bin, tool), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	lector := func(args ...string) (string, int) {
		var out bytes.Buffer
		code := run(context.Background(), args, streams{in: strings.NewReader(""), out: &out, err: &out})
		return out.String(), code
	}
	units := func() (found []string) {
		err := filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if out, code := lector("service", "install", "--", "--metrics", "127.0.0.1:0"); code != exitOK || len(units()) != 1 {
		t.Fatalf("exit code %d: %s; units %v", code, out, units())
	}
	unit, err := os.ReadFile(units()[0])
	if err != nil || !strings.Contains(string(unit), "--metrics") {
		t.Fatalf("%v: %s", err, unit)
	}
	if out, code := lector("service", "uninstall"); code != exitOK || len(units()) != 0 {
		t.Fatalf("exit code %d: %s; units %v", code, out, units())
	}
	calls, err := os.ReadFile(said)
	if err != nil || strings.Count(string(calls), "\n") < 3 {
		t.Errorf("%v: %s", err, calls)
	}
	for says, args := range map[string][]string{
		"unknown flag: --bogus":           {"service", "install", "--", "--bogus"},
		`"now" is none`:                   {"service", "install", "--", "now"},
		"--nats is for the worker":        {"service", "install", "--nats", "nats://q"},
		"is not NAME=VALUE":               {"service", "install", "--env", "A"},
		"--run-as goes with --system":     {"service", "install", "--run-as", "ada"},
		"control character":               {"service", "install", "--env", "A=b\nc"},
		"lector service uninstall --help": {"service", "uninstall", "all"},
	} {
		if out, code := lector(args...); code != exitInput || !strings.Contains(out, says) || len(units()) != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}
