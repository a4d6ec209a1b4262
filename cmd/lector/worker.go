package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/cache/disk"
	"lector/queue"
	"lector/worker"
)

// workerFlags say what a worker takes, and how much at once.
type workerFlags struct {
	kinds   []string
	slots   int
	ingests int
	ackWait time.Duration
	minFree string
}

func newWorker(a *app) *cobra.Command {
	var f workerFlags
	c := &cobra.Command{
		Use:   "worker",
		Short: "Take jobs of one model from the queue until told to stop",
		Long: "worker loads --model and takes the jobs that are for it. An interrupt or SIGTERM drains it: chunks at hand are finished and\n" +
			"stored, and their jobs go back to the queue for another worker, which goes on from there. A second one ends it at once.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.worker(c.Context(), f) },
	}
	fs := c.Flags()
	fs.StringSliceVar(&f.kinds, "kinds", []string{string(queue.Ingest), string(queue.Resume)}, "`kinds` of jobs to take: ingest, resume, or both")
	fs.IntVar(&f.slots, "slots", 4, "resumes worked on at once; they take turns on the engine")
	fs.IntVar(&f.ingests, "ingests", 1, "documents read at once; more than one rarely pays on one engine")
	fs.DurationVar(&f.ackWait, "ack-wait", 30*time.Second, "how long the queue waits for a word of a worker before another gets its job; the same for a whole fleet")
	fs.StringVar(&f.minFree, "min-free", "1G", "`bytes` of disk that stay free: with less no jobs are taken, and no document is begun whose state would leave less")
	a.metricsFlag(fs)
	return c
}

// counts checks the flags and says how many slots each kind has.
func (f *workerFlags) counts() (worker.Slots, error) {
	out := worker.Slots{}
	for _, kind := range f.kinds {
		switch queue.Kind(kind) {
		case queue.Ingest:
			out[queue.Ingest] = f.ingests
		case queue.Resume:
			out[queue.Resume] = f.slots
		default:
			return nil, fmt.Errorf("--kinds %q: it is ingest, resume, or both separated by a comma", kind)
		}
	}
	switch {
	case len(out) == 0:
		return nil, errors.New("--kinds is empty: give ingest, resume, or both")
	case f.slots < 1:
		return nil, fmt.Errorf("--slots %d: at least 1", f.slots)
	case f.ackWait < time.Second:
		return nil, fmt.Errorf("--ack-wait %v: at least 1s", f.ackWait)
	case f.ingests < 1:
		return nil, fmt.Errorf("--ingests %d: at least 1", f.ingests)
	}
	return out, nil
}

// lastScrapes is how long the metrics of a worker that ended for what it computed can still be scraped.
const lastScrapes = time.Minute

func (a *app) worker(ctx context.Context, f workerFlags) error {
	slots, err := f.counts()
	if err != nil {
		return badInput(err)
	}
	least, err := sizeOf("--min-free", f.minFree)
	if err != nil {
		return err
	}
	for kind := range slots {
		a.serves = append(a.serves, kind)
	}
	a.ackWait = f.ackWait
	s, err := a.openSession(ctx)
	if err != nil {
		return err
	}
	defer s.closeNoted()
	defer context.AfterFunc(ctx, s.watched.drain)()
	info := s.model.engine.Info()
	a.note("worker of model %s (%.12s) on %s takes %s", info.Name, s.identity.Model.String(), s.model.device.name, strings.Join(f.kinds, ", "))
	w := s.worker(func(queue.Job) {})
	if w.Disk, err = a.disk(least); err != nil {
		return err
	}
	err = s.serve(ctx, w, slots)
	if errors.Is(err, cache.ErrDiverged) && s.watched != nil {
		a.note("the metrics stay for %v, so that what happened is scraped", lastScrapes)
		select {
		case <-time.After(lastScrapes):
		case <-ctx.Done():
		}
	}
	if err == nil && ctx.Err() != nil {
		a.note("drained: every job at hand is stored and given back")
	}
	return err
}

// disk is what the worker asks of this machine's disk: where the states stay, or where chunks wait for a far store.
func (a *app) disk(least int64) (*worker.Disk, error) {
	folder, err := a.dataFolder()
	if err == nil && !a.far() {
		folder, err = a.storeFolder()
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", folder, err)
	}
	return &worker.Disk{Free: func() (int64, error) { return disk.Free(folder) }, Least: least, Holds: !a.far()}, nil
}
