package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lector/queue"
	"lector/queue/jetstream"
)

// pruneFlags say which jobs are to be forgotten.
type pruneFlags struct {
	older  string
	states []string
	dry    bool
}

func newJobsPrune(a *app) *cobra.Command {
	var f pruneFlags
	c := &cobra.Command{
		Use:   "prune",
		Short: "Forget jobs that ended long ago; what they stored stays",
		Long: "prune removes what the queue holds of jobs that ended before --older: record, result, events, and the note of the handle. States,\n" +
			"handles and documents in the store stay ('lector snapshot gc' collects those). Failed jobs are kept with their dead letters\n" +
			"unless --state failed asks for them. A job that was forgotten and is submitted again is a new one.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.jobsPrune(c.Context(), f) },
	}
	c.Flags().StringVar(&f.older, "older", "", "`age` since the end of a job, such as 30d or 12h (needed)")
	c.Flags().StringSliceVar(&f.states, "state", []string{string(queue.Done), string(queue.Cancelled), string(queue.Expired)}, "`states` of the jobs to forget: done, cancelled, expired, failed")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "list what would be forgotten, and forget nothing")
	return c
}

// parseAge reads a time in days, or as Go writes it.
func parseAge(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, is := strings.CutSuffix(text, "d"); is {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(n) * 24 * time.Hour
		if n > 36500 {
			err = errors.New("too many days")
		}
	}
	if err != nil || d < 0 {
		return 0, fmt.Errorf("--older %q is not an age such as 30d or 12h", text)
	}
	return d, nil
}

func (f pruneFlags) check() (time.Duration, error) {
	if f.older == "" {
		return 0, errors.New("give an age, such as --older 30d: jobs that ended since are kept")
	}
	for _, s := range f.states {
		if !queue.State(s).Final() {
			return 0, fmt.Errorf("--state %q: done, cancelled, expired or failed; a job that has not ended is never forgotten ('lector jobs cancel' ends it)", s)
		}
	}
	return parseAge(f.older)
}

func (a *app) jobsPrune(ctx context.Context, f pruneFlags) error {
	age, err := f.check()
	if err != nil {
		return badInput(err)
	}
	gone := 0
	return a.withQueue(ctx, func(q *jetstream.Queue) error {
		until := q.Now().Add(-age)
		var found []queue.Status
		err := q.List(ctx, func(s queue.Status) bool {
			if slices.Contains(f.states, string(s.State)) && !s.Updated.After(until) {
				found = append(found, s)
			}
			return true
		})
		if err != nil {
			return err
		}
		if f.dry {
			if err := a.printJobs(found); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "would forget %d jobs\n", len(found))
			return nil
		}
		for _, s := range found {
			err := q.Forget(ctx, s.Job.ID)
			switch {
			case err == nil:
				gone++
			case !errors.Is(err, jetstream.ErrOpen) && !errors.Is(err, queue.ErrUnknown): // queued again, or forgotten by another
				return fmt.Errorf("%w; %d jobs are forgotten", err, gone)
			}
		}
		fmt.Fprintf(a.out, "forgot %d jobs\n", gone)
		return nil
	})
}
