package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/cache/gc"
	"lector/queue"
	"lector/queue/jetstream"
)

// gcFlags are what a collection says.
type gcFlags struct {
	grace              time.Duration
	alone, dry, asJSON bool
}

func newSnapshotGC(a *app) *cobra.Command {
	var f gcFlags
	c := &cobra.Command{
		Use:   "gc",
		Short: "Collect what no handle, tag or open job needs",
		Long: "gc marks what nothing reaches, and deletes what an earlier gc has marked at least a grace ago. So it is run again,\n" +
			"once a day or so. With --alone, when no other lector writes to the store, one run deletes at once.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.snapshotGC(c.Context(), f) },
	}
	c.Flags().DurationVar(&f.grace, "grace", 0, fmt.Sprintf("`time` that an object must have been unreachable (default %v, with --alone 0)", gc.LeastGrace))
	c.Flags().BoolVar(&f.alone, "alone", false, "no other lector writes to this store")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "say what would go, and delete nothing")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print the report as JSON")
	return c
}

func (a *app) snapshotGC(ctx context.Context, f gcFlags) (err error) {
	if f.grace < 0 || f.grace > 0 && f.grace < gc.LeastGrace && !f.alone {
		return badInput(fmt.Errorf("--grace %v: at least %v, unless no other lector writes to the store (--alone)", f.grace, gc.LeastGrace))
	}
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	open, closer, err := a.openJobs(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	report, err := gc.Run(ctx, space, gc.Options{Grace: f.grace, Alone: f.alone, DryRun: f.dry, Open: open})
	for _, note := range report.Notes {
		a.note("%s", note)
	}
	if err != nil {
		return err
	}
	if f.asJSON {
		return json.NewEncoder(a.out).Encode(report)
	}
	return a.printCollected(report, f.dry)
}

func (a *app) printCollected(r gc.Report, dry bool) error {
	verb := "deleted"
	if dry {
		verb = "would delete"
	}
	fmt.Fprintf(a.out, "%s %d objects, %s\n", verb, r.Deleted.Objects, size(r.Deleted.Bytes))
	fmt.Fprintf(a.out, "in use %d objects, %s\n", r.Live.Objects, size(r.Live.Bytes))
	if r.Unknown.Objects > 0 {
		fmt.Fprintf(a.out, "not known %d objects, %s, left alone\n", r.Unknown.Objects, size(r.Unknown.Bytes))
	}
	if r.Next != nil {
		fmt.Fprintf(a.out, "waiting %d objects, %s; the first may go at %s\n", r.Waiting.Objects, size(r.Waiting.Bytes), r.Next.UTC().Format(time.RFC3339))
	}
	return nil
}

// openJobs asks the queue for what its open jobs need. A data folder that never had a queue has none.
func (a *app) openJobs(ctx context.Context) (func(context.Context) (gc.Open, error), io.Closer, error) {
	if !a.nats.remote() {
		data, err := a.dataFolder()
		if err != nil {
			return nil, nil, err
		}
		if _, err := os.Stat(filepath.Join(data, queueFolder)); errors.Is(err, os.ErrNotExist) {
			return nil, closers(nil), nil
		}
	}
	q, closer, err := a.openQueueOnly(ctx, jetstream.Config{})
	if err != nil {
		return nil, nil, err
	}
	open := func(ctx context.Context) (gc.Open, error) {
		jobs, err := q.Unfinished(ctx)
		if err != nil {
			return gc.Open{}, err
		}
		return needs(jobs)
	}
	return open, closer, nil
}

// closers closes several things.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// needs is what jobs read and resume from.
func needs(jobs []queue.Status) (gc.Open, error) {
	var open gc.Open
	for _, s := range jobs {
		open.Jobs = append(open.Jobs, s.Job.ID)
		for _, need := range []struct {
			text string
			to   *[]cache.Digest
		}{{documentOf(s.Job), &open.Documents}, {handleOf(s.Job), &open.Handles}} {
			if need.text == "" {
				continue
			}
			d, err := cache.ParseDigest(need.text)
			if err != nil {
				return open, fmt.Errorf("job %s: %w", s.Job.ID, err)
			}
			*need.to = append(*need.to, d)
		}
	}
	return open, nil
}

func documentOf(j queue.Job) string {
	if j.Ingest == nil {
		return ""
	}
	return j.Ingest.Document
}

func handleOf(j queue.Job) string {
	if j.Resume == nil {
		return ""
	}
	return j.Resume.Handle
}
