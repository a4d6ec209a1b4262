// Command lector reads long documents once and keeps what the model then knows.
//
// This package chooses implementations and nothing else: flags, the environment, signals, exit codes, what a
// person sees. One file a command. Only the result goes to standard output; everything said beside it goes
// to standard error. Start reading at newRoot, then a command's file.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := untilSignal()
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// untilSignal is a context that the first interrupt ends, for a clean stop at the next chunk; a second one
// kills the process at once.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, cancel) // restores the default action, so that the second signal ends the process
	return ctx, cancel
}

// run is the whole command, and returns its exit code.
func run(ctx context.Context, args []string, io streams) int {
	root, a := newRoot(io)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if a.ownerLeft(ctx, err) {
		err = fmt.Errorf("the process that kept the queue of this data folder has ended meanwhile; the same command asks the next one: %w", err)
	}
	var quiet silent
	if !errors.As(err, &quiet) {
		a.fail(err)
	}
	return exitCode(err)
}

// newRoot assembles the commands.
func newRoot(io streams) (*cobra.Command, *app) {
	a := &app{streams: io}
	root := &cobra.Command{
		Use:           "lector",
		Short:         "lector reads a long document once and keeps what the model then knows",
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return misused(c, plainFlag(err)) })
	topics := a.topics()
	foldOptions(root, topics)
	root.AddCommand(
		newDemo(a), newIngest(a), newResume(a), newWorker(a), newService(a), newTop(a), newQueue(a), newSubmit(a), newJobs(a), newCheck(a),
		newModel(a), newSnapshot(a), newBench(a), newDoctor(a), newOptions(a, topics), newVersion(a),
	)
	strict(root)
	return root, a
}

// strict makes wrong arguments an input error with a hint, for c and its subcommands.
func strict(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return misused(c, plainArguments(c, args, err))
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		strict(sub)
	}
}
