package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lector/deploy"
)

// serviceFlags are what a service says beside the worker's own flags.
type serviceFlags struct {
	system, dry bool
	runAs       string
	env         []string
}

func newService(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "service",
		Short: "Run a worker as a service of this machine (launchd or systemd)",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newServiceInstall(a), newServiceUninstall(a))
	return c
}

func newServiceInstall(a *app) *cobra.Command {
	var f serviceFlags
	c := &cobra.Command{
		Use:   "install [flags] -- [flags of lector worker]",
		Short: "Write the unit of a worker and start it, now and with every login or boot",
		Long: "install writes a unit that runs lector worker with the flags after --, beginning in this folder, and starts it. It\n" +
			"is a service of this user; with --system of the machine (as root). Doing it again replaces it. --dry-run prints what\n" +
			"would be written and run, and does nothing.",
		Example: "  lector service install --dry-run -- --nats nats://queue.example:4222 --store 's3://bucket?region=eu-north-1' --metrics 127.0.0.1:9464",
		RunE: func(c *cobra.Command, args []string) error {
			if err := misplaced(c); err != nil {
				return badInput(err)
			}
			p, err := a.servicePlan(f, args)
			if err != nil {
				return err
			}
			return a.carryOut(c.Context(), p.install, f.dry)
		},
	}
	f.flags(c)
	c.Flags().StringVar(&f.runAs, "run-as", "", "`user` that the service of --system runs as (default: lector)")
	c.Flags().StringArrayVar(&f.env, "env", nil, "`NAME=VALUE` of the service's environment; may be given again. Secrets belong into the file that the unit names")
	return c
}

func newServiceUninstall(a *app) *cobra.Command {
	var f serviceFlags
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Drain the worker, stop it and remove its unit; data and logs stay",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := a.servicePlan(f, nil)
			if err != nil {
				return err
			}
			return a.carryOut(c.Context(), p.uninstall, f.dry)
		},
	}
	f.flags(c)
	return c
}

func (f *serviceFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.system, "system", false, "a service of the machine instead of this user's")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "print what would be done, and do nothing")
}

// misplaced refuses a flag of every command that was meant for the worker.
func misplaced(c *cobra.Command) (err error) {
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && err == nil {
			err = fmt.Errorf("--%s is for the worker: give it after --", f.Name)
		}
	})
	return err
}

// servicePlan is what installing and uninstalling do on this machine.
func (a *app) servicePlan(f serviceFlags, args []string) (plan, error) {
	if err := checkWorkerFlags(args); err != nil {
		return plan{}, err
	}
	w, err := here(f.system)
	if err != nil {
		return plan{}, err
	}
	s := deploy.Service{Program: w.program, Arguments: append([]string{"worker"}, args...), Folder: w.folder, System: f.system, User: f.runAs}
	if f.runAs != "" && !f.system {
		return plan{}, badInput(errors.New("--run-as goes with --system: a user's service runs as that user"))
	}
	for _, text := range f.env {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return plan{}, badInput(fmt.Errorf("--env %q is not NAME=VALUE", text))
		}
		s.Variables = append(s.Variables, deploy.Variable{Name: name, Value: value})
	}
	p, err := w.plan(s)
	return p, badInput(err)
}

// checkWorkerFlags refuses what lector worker would refuse, before a unit repeats it for ever.
func checkWorkerFlags(args []string) error {
	root, _ := newRoot(streams{in: strings.NewReader(""), out: os.Stdout, err: os.Stderr})
	c, _, err := root.Find([]string{"worker"})
	if err != nil {
		return err
	}
	if err := c.ParseFlags(args); err != nil {
		return badInput(fmt.Errorf("flags of lector worker: %w", err))
	}
	if rest := c.Flags().Args(); len(rest) > 0 {
		return badInput(fmt.Errorf("flags of lector worker: %q is none (give them after --)", rest[0]))
	}
	return nil
}

// where is the machine that a service is for.
type where struct {
	system          string // operating system
	home, config    string // of the user
	uid             string
	program, folder string
}

func here(system bool) (where, error) {
	w := where{system: runtime.GOOS}
	var err error
	if w.program, err = os.Executable(); err == nil {
		w.program, err = filepath.EvalSymlinks(w.program)
	}
	if err != nil {
		return w, fmt.Errorf("find this program: %w", err)
	}
	if w.folder, err = os.Getwd(); err != nil {
		return w, fmt.Errorf("find this folder: %w", err)
	}
	if system {
		return w, nil
	}
	u, err := user.Current()
	if err != nil {
		return w, fmt.Errorf("find this user: %w", err)
	}
	w.uid = u.Uid
	if w.home, err = os.UserHomeDir(); err != nil {
		return w, badInput(fmt.Errorf("find this user's units: %w", err))
	}
	w.config = envOr("XDG_CONFIG_HOME", filepath.Join(w.home, ".config"))
	return w, nil
}

// plan is what a service needs done.
type plan struct{ install, uninstall []step }

// step is one of: a file to write, a file to remove, a command to run.
type step struct {
	write, text string
	remove      string
	run         []string
	may         bool // the command may fail
	say         string
}

// carryOut does the steps, or prints them.
func (a *app) carryOut(ctx context.Context, steps []step, dry bool) error {
	for _, s := range steps {
		if dry {
			fmt.Fprint(a.out, s.String())
			continue
		}
		if err := s.do(ctx); err != nil {
			return err
		}
		if line, _, _ := strings.Cut(s.String(), "\n"); line != "" {
			a.note("%s", line)
		}
	}
	return nil
}

// String is the step for people.
func (s step) String() string {
	switch {
	case s.write != "":
		return fmt.Sprintf("write %s\n%s\n", s.write, s.text)
	case s.remove != "":
		return fmt.Sprintf("remove %s\n", s.remove)
	case s.run != nil:
		return fmt.Sprintf("run %s\n", strings.Join(s.run, " "))
	}
	return s.say + "\n"
}

func (s step) do(ctx context.Context) error {
	switch {
	case s.write != "":
		if err := os.MkdirAll(filepath.Dir(s.write), 0o755); err != nil {
			return fmt.Errorf("install service: %w", err)
		}
		if err := os.WriteFile(s.write, []byte(s.text), 0o644); err != nil {
			return fmt.Errorf("install service: %w", err)
		}
	case s.remove != "":
		if err := os.Remove(s.remove); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("uninstall service: %w", err)
		}
	case s.run != nil:
		out, err := exec.CommandContext(ctx, s.run[0], s.run[1:]...).CombinedOutput()
		if err != nil && !s.may {
			return fmt.Errorf("run %s: %w: %s (--dry-run shows all steps, to do by hand)", strings.Join(s.run, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// plan is what the system of w needs for the service.
func (w where) plan(s deploy.Service) (plan, error) {
	if s.System && s.User == "" {
		s.User = "lector"
	}
	switch w.system {
	case "linux":
		return w.planSystemd(s)
	case "darwin":
		return w.planLaunchd(s)
	}
	return plan{}, fmt.Errorf("lector knows services of launchd and systemd, not those of %s", w.system)
}

func (w where) planSystemd(s deploy.Service) (plan, error) {
	ctl, path := []string{"systemctl", "--user"}, filepath.Join(w.config, "systemd", "user", deploy.SystemdUnit)
	s.Secrets = filepath.Join(w.config, "lector", "worker.env")
	after := "to keep it running without a login: loginctl enable-linger"
	if s.System {
		ctl, path = ctl[:1], filepath.Join("/etc/systemd/system", deploy.SystemdUnit)
		s.Secrets = "/etc/lector/worker.env"
		s.Variables = append([]deploy.Variable{{Name: "LECTOR_DATA", Value: "/var/lib/lector"}}, s.Variables...)
		after = "its user must exist: useradd --system " + s.User
	}
	text, err := s.Systemd()
	with := func(args ...string) []string { return append(ctl[:len(ctl):len(ctl)], args...) }
	return plan{
		install: []step{
			{write: path, text: text}, {run: with("daemon-reload")}, {run: with("enable", deploy.SystemdUnit)},
			{run: with("restart", "--no-block", deploy.SystemdUnit)}, {say: after},
		},
		uninstall: []step{{run: with("disable", "--now", deploy.SystemdUnit), may: true}, {remove: path}, {run: with("daemon-reload")}},
	}, err
}

func (w where) planLaunchd(s deploy.Service) (plan, error) {
	domain, base := "gui/"+w.uid, filepath.Join(w.home, "Library")
	agents := filepath.Join(base, "LaunchAgents")
	if s.System {
		domain, base, agents = "system", "/Library", "/Library/LaunchDaemons"
		s.Variables = append([]deploy.Variable{{Name: "LECTOR_DATA", Value: "/Library/Application Support/lector"}}, s.Variables...)
	}
	s.Log = filepath.Join(base, "Logs", "lector-worker.log")
	path := filepath.Join(agents, deploy.LaunchdLabel+".plist")
	text, err := s.Launchd()
	out := step{run: []string{"launchctl", "bootout", domain + "/" + deploy.LaunchdLabel}, may: true}
	return plan{
		install:   []step{out, {write: path, text: text}, {run: []string{"launchctl", "bootstrap", domain, path}}, {say: "its log is " + s.Log}},
		uninstall: []step{out, {remove: path}},
	}, err
}
