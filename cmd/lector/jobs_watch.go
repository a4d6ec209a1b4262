package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
	"lector/worker/client"
)

func newJobsWatch(a *app) *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "watch JOB",
		Short: "Follow a job until it ends, and say where its result is",
		Long: "watch tells the story of a job from its beginning until it ends, and then where the result is or why there is none.\n" +
			"The exit code is 0 for a job that is done, 2 for one whose input is at fault, and 1 for others that failed, were cancelled or expired.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var told once
			return a.whereWorked(c.Context(), args[0], func(q *jetstream.Queue, s queue.Status) error {
				return a.jobsWatch(c.Context(), q, s, watching{&told, asJSON})
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print every event, and the status at the end, as one JSON object a line")
	return c
}

// watching is how a job is watched.
type watching struct {
	told   *once
	asJSON bool
}

func (a *app) jobsWatch(ctx context.Context, q *jetstream.Queue, s queue.Status, w watching) error {
	enc := json.NewEncoder(a.out)
	c := client.Client{Queue: q}
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s, err := c.Follow(watched, s.Job.ID, w.told.of(func(e queue.Event) {
		if watched.Err() != nil {
			return
		}
		tell := a.printEvent
		if w.asJSON {
			tell = func(e queue.Event) error { return enc.Encode(e) }
		}
		if err := tell(e); err != nil {
			stop(err)
		}
	}))
	if err != nil {
		return err
	}
	if w.asJSON {
		if err := enc.Encode(s); err != nil {
			return err
		}
		return endOf(s)
	}
	fmt.Fprintf(a.out, "%s %s\n", s.Job.ID, outcomeOf(s))
	return endOf(s)
}

// printEvent tells one step of a job's story; the end is left to its status.
func (a *app) printEvent(e queue.Event) error {
	at := e.At.UTC().Format("15:04:05")
	switch e.Type {
	case queue.EventStarted:
		fmt.Fprintf(a.out, "%s attempt %d began\n", at, e.Attempt)
	case queue.EventRestored:
		fmt.Fprintf(a.out, "%s restored %d tokens\n", at, e.Tokens)
	case queue.EventProgress:
		fmt.Fprintf(a.out, "%s read %d of %d tokens\n", at, e.Tokens, e.Total)
	case queue.EventHandle:
		var h worker.EarlyHandle
		if e.Reason != "" {
			fmt.Fprintf(a.out, "%s no handle at %d tokens: %s\n", at, e.Tokens, e.Reason)
		} else if err := json.Unmarshal(e.Result, &h); err != nil {
			return fmt.Errorf("decode handle of event: %w", err)
		} else {
			fmt.Fprintf(a.out, "%s the state of the first %d tokens is %s\n", at, h.Tokens, h.Handle)
		}
	case queue.EventRetry:
		fmt.Fprintf(a.out, "%s attempt %d failed: %s\n", at, e.Attempt, e.Reason)
	case queue.EventTokens:
		fmt.Fprintf(a.out, "%s text %d from %d: %q\n", at, e.Branch, e.First, e.Text)
	}
	return nil
}

// untilFinal follows a job until it has ended, and returns the status that stands then.
func untilFinal(ctx context.Context, q *jetstream.Queue, id string) (queue.Status, error) {
	c := client.Client{Queue: q}
	return c.Follow(ctx, id, nil)
}

// whereWorked runs f on a job, at the queue of another process where that is how the job will end: of a data folder that
// nobody else has open, nobody works on the jobs, and to serve it meanwhile would leave a worker that comes without a
// queue when this command ends. Where that process ends before f does, f is run again at the queue of the next.
func (a *app) whereWorked(ctx context.Context, name string, f func(*jetstream.Queue, queue.Status) error) error {
	for looks := 0; ; {
		alone := false
		err := a.withJob(ctx, name, func(q *jetstream.Queue, s queue.Status) error {
			if alone = (q.Embedded() || q.Passing()) && !s.State.Final(); alone {
				return nil
			}
			return f(q, s)
		})
		left := a.ownerLeft(ctx, err)
		if !left && (err != nil || !alone) {
			return err
		}
		if !alone {
			looks = 0
		} else if looks++; looks == soonAlone { // a worker may be about to take over
			a.note("no other lector has this data folder open: 'lector worker' works on what waits in its queue")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for job %s: %w", name, ctx.Err())
		case <-time.After(lookAgain):
		}
	}
}

// lookAgain is how often a command that waits for somebody to work on a job looks for that, and soonAlone how often it finds
// nobody before it says so.
const (
	lookAgain = 500 * time.Millisecond
	soonAlone = 3
)

// endOf is the error of a job that did not come to a result; outcomeOf has been printed.
func endOf(s queue.Status) error {
	if s.State == queue.Done {
		return nil
	}
	err := error(silent{fmt.Errorf("job %s ended as %s", s.Job.ID, s.State)})
	if s.State == queue.Failed && s.Dead != nil && slices.Contains(inputClasses(), s.Dead.Class) {
		err = badInput(err)
	}
	return err
}

func newJobsWait(a *app) *cobra.Command {
	limit := time.Duration(0)
	c := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait until jobs have ended, and say how",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.jobsWait(c.Context(), args, limit) },
	}
	c.Flags().DurationVar(&limit, "timeout", 0, "give up after this `time`; the jobs go on (default: never)")
	return c
}

func (a *app) jobsWait(ctx context.Context, names []string, limit time.Duration) error {
	if limit < 0 {
		return badInput(fmt.Errorf("--timeout %v: a time above 0", limit))
	}
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		waiting, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	var worst error
	for _, name := range names {
		err := a.whereWorked(waiting, name, func(q *jetstream.Queue, s queue.Status) (err error) {
			if s, err = untilFinal(waiting, q, s.Job.ID); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s %s\n", s.Job.ID, outcomeOf(s))
			return endOf(s)
		})
		var quiet silent
		switch {
		case errors.As(err, &quiet):
			worst = err
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return fmt.Errorf("job %s has not ended within %v", name, limit)
		case err != nil:
			return err
		}
	}
	return worst
}
