package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/queue"
	"lector/queue/jetstream"
)

func newJobsDead(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "dead",
		Short: "Look at the jobs that will not be tried again, and decide on them",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newDeadLs(a), newDeadShow(a), newDeadReplay(a), newDeadDrop(a))
	return c
}

func newDeadLs(a *app) *cobra.Command {
	var classes []string
	asJSON := false
	c := &cobra.Command{
		Use:   "ls",
		Short: "List dead letters, the oldest first",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			letters, err := a.deadLetters(c.Context(), classes)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(a.out)
				for _, l := range letters {
					if err := enc.Encode(l); err != nil {
						return err
					}
				}
				return nil
			}
			t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "JOB\tCLASS\tAGE\tTRIES\tSTORED\tHOST\tREASON")
			for _, l := range letters {
				fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%.80s\n", l.Name, l.Dead.Class, age(time.Since(l.At)), l.Attempts, l.Dead.LastGood, l.Dead.Host, l.Dead.Reason)
			}
			return t.Flush()
		},
	}
	c.Flags().StringSliceVar(&classes, "class", nil, "only letters of these `classes`, such as device or bad-input")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}

func (a *app) deadLetters(ctx context.Context, classes []string) ([]queue.Letter, error) {
	var out []queue.Letter
	err := a.withQueue(ctx, func(q *jetstream.Queue) (err error) {
		out, err = lettersOf(ctx, q, classes)
		return err
	})
	return out, err
}

func lettersOf(ctx context.Context, q *jetstream.Queue, classes []string) ([]queue.Letter, error) {
	var out []queue.Letter
	err := q.DeadLetters(ctx, func(l queue.Letter) bool {
		if len(classes) == 0 || slices.Contains(classes, l.Dead.Class) {
			out = append(out, l)
		}
		return true
	})
	return out, err
}

// letter finds one dead letter.
func letter(ctx context.Context, q *jetstream.Queue, name string) (queue.Letter, error) {
	all, err := lettersOf(ctx, q, nil)
	if err != nil {
		return queue.Letter{}, err
	}
	if i := slices.IndexFunc(all, func(l queue.Letter) bool { return l.Name == name }); i >= 0 {
		return all[i], nil
	}
	return queue.Letter{}, badInput(fmt.Errorf("there is no dead letter of job %q ('lector jobs dead ls' lists those that are)", name))
}

func newDeadShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show JOB",
		Short: "Print a dead letter as JSON: the job, the reason, the last good boundary, the host",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withQueue(c.Context(), func(q *jetstream.Queue) error {
				l, err := letter(c.Context(), q, args[0])
				if err != nil {
					return err
				}
				enc := json.NewEncoder(a.out)
				enc.SetIndent("", "  ")
				return enc.Encode(l)
			})
		},
	}
}

// deadChoice says which letters are meant.
type deadChoice struct {
	all     bool
	classes []string
}

func (d *deadChoice) flags(c *cobra.Command) {
	c.Flags().BoolVar(&d.all, "all", false, "all dead letters, or with --class all of these")
	c.Flags().StringSliceVar(&d.classes, "class", nil, "with --all: only letters of these `classes`")
}

// eachLetter runs f on every letter that is meant, on none twice.
func (a *app) eachLetter(ctx context.Context, d deadChoice, names []string, f func(*jetstream.Queue, queue.Letter) error) error {
	var letters []queue.Letter
	err := a.withQueue(ctx, func(q *jetstream.Queue) (err error) {
		letters, err = d.letters(ctx, q, names)
		return err
	})
	if err != nil || len(letters) == 0 {
		return err
	}
	return a.withQueue(ctx, func(q *jetstream.Queue) error {
		for ; len(letters) > 0; letters = letters[1:] {
			if err := f(q, letters[0]); err != nil {
				return err
			}
		}
		return nil
	})
}

// letters are those that are named, or all.
func (d deadChoice) letters(ctx context.Context, q *jetstream.Queue, names []string) ([]queue.Letter, error) {
	switch {
	case d.all && len(names) > 0:
		return nil, badInput(errors.New("give jobs or --all, not both"))
	case !d.all && len(names) == 0:
		return nil, badInput(errors.New("give jobs, or --all"))
	case !d.all && len(d.classes) > 0:
		return nil, badInput(errors.New("--class goes with --all"))
	case d.all:
		return lettersOf(ctx, q, d.classes)
	}
	var out []queue.Letter
	for _, name := range names {
		l, err := letter(ctx, q, name)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

func newDeadReplay(a *app) *cobra.Command {
	var d deadChoice
	c := &cobra.Command{
		Use:   "replay [JOB...]",
		Short: "Queue dead jobs afresh; they go on from the last stored boundary",
		Long:  "replay queues dead jobs afresh, with all their attempts before them. What was stored of a document is not read again.",
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			return a.eachLetter(ctx, d, args, func(q *jetstream.Queue, l queue.Letter) error { return a.replay(ctx, q, l) })
		},
	}
	d.flags(c)
	return c
}

func (a *app) replay(ctx context.Context, q *jetstream.Queue, l queue.Letter) error {
	if l.Job == nil {
		a.note("%s holds no job, only a message that is none ('lector jobs dead show %s')", l.Name, l.Name)
		return nil
	}
	job := *l.Job
	job.Submitted = time.Now().UTC()
	s, err := q.Submit(ctx, job)
	if err != nil {
		return fmt.Errorf("replay job %s: %w", job.ID, err)
	}
	fmt.Fprintf(a.out, "%s %s, %d tokens are stored\n", job.ID, outcomeOf(s), l.Dead.LastGood)
	return nil
}

func newDeadDrop(a *app) *cobra.Command {
	var d deadChoice
	c := &cobra.Command{
		Use:   "drop [JOB...]",
		Short: "Remove dead letters; their jobs stay failed",
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			return a.eachLetter(ctx, d, args, func(q *jetstream.Queue, l queue.Letter) error {
				if err := q.DropLetter(ctx, l.Name); err != nil && !errors.Is(err, queue.ErrUnknown) {
					return err
				}
				fmt.Fprintf(a.out, "%s dropped\n", l.Name)
				return nil
			})
		},
	}
	d.flags(c)
	return c
}
