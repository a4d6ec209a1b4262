// Command soak runs a fleet on this machine and troubles it: three worker processes, a NATS cluster of three nodes and an
// S3 server on loopback read several hundred documents of mixed length, many of which begin alike, while workers are
// killed, stopped for a while, cut from NATS, from S3 and from both, and a NATS node is restarted.
//
//	go run ./tests/cmd/soak                          five hundred documents, within ten minutes
//	go run ./tests/cmd/soak -documents 20 -seed 7    a short one
//
// Documents come two a second, so that every kind of trouble meets work. At the end every job has to be done with a handle
// that verifies, what was computed has to add up, to the unique cells of all documents and at most the cells at hand of what
// each trouble cut short, and no claim on a chunk may have been taken while another's was valid. It prints what it did and
// what came of it, and exits with 1 where something does not hold. A seed fixes the
// documents and the troubles, not the moments that processes are met in.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	seed      uint64
	documents int
	limit     time.Duration
	keep      bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "of documents and troubles")
	flag.IntVar(&o.documents, "documents", 500, "to read")
	flag.DurationVar(&o.limit, "limit", 10*time.Minute, "for all of it")
	flag.BoolVar(&o.keep, "keep", false, "leave the folder with logs and stores")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soak(ctx, o, func(format string, args ...any) { fmt.Printf(format+"\n", args...) }); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// soak is the whole of it.
func soak(ctx context.Context, o options, say func(string, ...any)) (err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done within %v", o.limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "lector-soak-")
	if err != nil {
		return err
	}
	defer func() {
		if o.keep || err != nil {
			say("logs and stores are in %s", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	f := &fleet{dir: dir, say: say, program: filepath.Join(dir, "lector"), model: filepath.Join(dir, "model")}
	if err := f.build(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.start(ctx); err != nil {
		return err
	}
	w, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	say("the fleet is up, %v after the start", time.Since(began).Round(time.Second))
	t := newTroubles(f, o.seed)
	if err := w.wait(ctx, t, newDocuments(o.seed, o.documents)); err != nil {
		return err
	}
	return w.check(ctx, t, began)
}

// build makes the program and a random model.
func (f *fleet) build(ctx context.Context) error {
	for _, command := range [][]string{
		{"go", "build", "-o", f.program, "lector/cmd/lector"},
		{f.program, "model", "new", "--preset", "tiny", "--out", f.model},
	} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("run %v: %w: %s", command, err, out)
		}
	}
	return nil
}
