package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/queue"
	"lector/queue/jetstream"
)

func newQueue(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "Create, look at, bound, pause and resume the queue",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newQueueInit(a), newQueueShow(a), newQueueQuota(a), newQueuePause(a), newQueueResume(a))
	return c
}

// queueLimits are the settings of the streams; 0 leaves what there is.
type queueLimits struct {
	replicas                  int
	maxJobs                   int64
	maxEventBytes             string
	maxEventAge, dedupeWindow time.Duration
}

func newQueueInit(a *app) *cobra.Command {
	var f queueLimits
	c := &cobra.Command{
		Use:   "init",
		Short: "Create the streams of the queue, or bring them up to date",
		Long: "init creates the streams and buckets that lector needs on the NATS servers of --nats, and changes what would break a\n" +
			"promise in those that exist. Doing it again changes nothing. Limits that are not given stay as they are.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.queueInit(c.Context(), f) },
	}
	fs := c.Flags()
	fs.IntVar(&f.replicas, "replicas", 0, "`copies` of each stream: 1, or 3 or 5 in a cluster (new streams: 1)")
	fs.Int64Var(&f.maxJobs, "max-jobs", 0, "`jobs` that may wait before new ones are refused (new streams: 100000)")
	fs.StringVar(&f.maxEventBytes, "max-event-bytes", "", "`bytes` of events to keep, such as 1G (new streams: 256M)")
	fs.DurationVar(&f.maxEventAge, "max-event-age", 0, "`time` to keep events (new streams: 168h)")
	fs.DurationVar(&f.dedupeWindow, "dedupe", 0, "`time` within which a repeated submit is recognized by the server alone (new streams: 1h)")
	return c
}

func (a *app) queueInit(ctx context.Context, f queueLimits) error {
	switch {
	case f.replicas != 0 && f.replicas != 1 && f.replicas != 3 && f.replicas != 5:
		return badInput(fmt.Errorf("--replicas %d: 1, 3 or 5", f.replicas))
	case f.maxJobs < 0:
		return badInput(fmt.Errorf("--max-jobs %d: at least 1", f.maxJobs))
	case f.maxEventAge < 0 || f.dedupeWindow < 0:
		return badInput(errors.New("--max-event-age and --dedupe: a time above 0"))
	}
	cfg := jetstream.Config{
		Create: true, Replicas: f.replicas, MaxJobs: f.maxJobs, MaxEventAge: f.maxEventAge, Dedupe: f.dedupeWindow,
	}
	if f.maxEventBytes != "" {
		var err error
		if cfg.MaxEventBytes, err = sizeOf("--max-event-bytes", f.maxEventBytes); err != nil {
			return err
		}
	}
	q, closer, err := a.openQueueOnly(ctx, cfg)
	if err != nil {
		return err
	}
	defer closeNoted(a, closer)
	for _, c := range q.Changes() {
		fmt.Fprintf(a.out, "%s: %s\n", c.Stream, c.What)
	}
	if len(q.Changes()) == 0 {
		fmt.Fprintln(a.out, "the queue is up to date")
	}
	return nil
}

// openQueueOnly opens the queue without a model: to look at it or to change it, not to work.
func (a *app) openQueueOnly(ctx context.Context, cfg jetstream.Config) (*jetstream.Queue, closers, error) {
	cfg.Visit = true
	q, server, err := a.openQueue(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	if server == nil {
		return q, closers{q}, nil
	}
	return q, closers{q, leaving{server, func() { a.leave(ctx, server) }}}, nil
}

func closeNoted(a *app, c closers) {
	if err := c.Close(); err != nil {
		a.note("lector: close: %s", oneLine(err))
	}
}

func newQueueShow(a *app) *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "show",
		Short: "Say how many jobs wait, and how large the streams are",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.queueShow(c.Context(), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return c
}

func (a *app) queueShow(ctx context.Context, asJSON bool) error {
	var r jetstream.Report
	err := a.withQueue(ctx, func(q *jetstream.Queue) (err error) {
		r, err = q.Report(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(a.out).Encode(r)
	}
	if r.Paused != nil {
		fmt.Fprintln(a.out, pausedLine(*r.Paused))
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KIND\tMODEL\tPRIORITY\tWAITING\tIN HAND\tREPEATED")
	for _, d := range r.Depths {
		note := ""
		if !d.Workers {
			note = "\tno worker has asked for these yet"
		}
		fmt.Fprintf(t, "%s\t%.16s\t%s\t%d\t%d\t%d%s\n", d.Kind, d.Model, d.Priority, d.Waiting, d.InHand, d.Repeated, note)
	}
	if len(r.Depths) == 0 {
		fmt.Fprintln(t, "none")
	}
	fmt.Fprintln(t, "\nSTREAM\tMESSAGES\tSIZE\tLIMIT\tCOPIES\t")
	for _, s := range r.Streams {
		limit := "-"
		switch {
		case s.Most > 0:
			limit = fmt.Sprint(s.Most)
		case s.MaxBytes > 0:
			limit = size(s.MaxBytes)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t", s.Name, s.Messages, size(int64(s.Bytes)), limit, s.Replicas)
		for _, peer := range s.Lagging {
			fmt.Fprintf(t, "%s lags ", peer)
		}
		fmt.Fprintln(t)
	}
	if slices.ContainsFunc(r.Tenants, func(u queue.TenantUse) bool { return u.Quota != (queue.Quota{}) }) {
		fmt.Fprintln(t)
		tenantRows(t, r.Tenants)
	}
	return t.Flush()
}

func pausedLine(p queue.Pause) string {
	line := "PAUSED since " + p.Since.UTC().Format(time.RFC3339)
	if p.By != "" {
		line += " by " + p.By
	}
	if p.Reason != "" {
		line += ": " + p.Reason
	}
	return line
}

func newQueuePause(a *app) *cobra.Command {
	reason := ""
	c := &cobra.Command{
		Use:   "pause",
		Short: "Hand out no more jobs; those being worked on go on",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withQueue(c.Context(), func(q *jetstream.Queue) error {
				p := queue.Pause{Since: time.Now().UTC(), Reason: reason, By: whoAmI()}
				if err := q.Pause(c.Context(), p); err != nil {
					return err
				}
				fmt.Fprintln(a.out, pausedLine(p))
				return nil
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`text` that those who look at the queue shall read")
	return c
}

func newQueueResume(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Hand out jobs again after a pause",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withQueue(c.Context(), func(q *jetstream.Queue) error {
				p, err := q.Paused(c.Context())
				if err != nil {
					return err
				}
				if p == nil {
					fmt.Fprintln(a.out, "the queue was not paused")
					return nil
				}
				if err := q.Unpause(c.Context()); err != nil {
					return err
				}
				fmt.Fprintf(a.out, "jobs are handed out again, after %v\n", time.Since(p.Since).Round(time.Second))
				return nil
			})
		},
	}
}

// withQueue runs f on the queue, opened without a model. Where another process kept the queue of the data folder and has ended
// meanwhile, f is run again at the queue of the next owner: it looks anew, and goes on behind what it has done and said.
func (a *app) withQueue(ctx context.Context, f func(*jetstream.Queue) error) error {
	for {
		q, closer, err := a.openQueueOnly(ctx, jetstream.Config{})
		if err != nil {
			return err
		}
		err = f(q)
		closeNoted(a, closer)
		if q.Embedded() || !a.ownerLeft(ctx, err) {
			return err
		}
	}
}

// whoAmI names the person at this machine, for others to ask.
func whoAmI() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
