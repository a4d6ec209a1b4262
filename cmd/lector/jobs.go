package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
)

func newJobs(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "jobs",
		Short: "Look at jobs, wait for them, cancel them, and decide on dead ones",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newJobsLs(a), newJobsShow(a), newJobsWatch(a), newJobsWait(a), newJobsCancel(a), newJobsPrune(a), newJobsDead(a))
	return c
}

// jobFilter says which jobs are meant.
type jobFilter struct {
	states, kinds, labels []string
	model, tenant         string
	limit                 int
	asJSON                bool
}

func newJobsLs(a *app) *cobra.Command {
	var f jobFilter
	c := &cobra.Command{
		Use:   "ls",
		Short: "List jobs, the newest first",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.jobsLs(c.Context(), f) },
	}
	fs := c.Flags()
	fs.StringSliceVar(&f.states, "state", nil, "only jobs in these `states`: queued, running, done, failed, cancelled, expired, or open (the first two)")
	fs.StringSliceVar(&f.kinds, "kind", nil, "only these `kinds`: ingest, resume")
	fs.StringArrayVar(&f.labels, "label", nil, "only jobs with the label `name=value`, or with any value: name; may be given again")
	fs.StringVar(&f.model, "for-model", "", "only jobs of the model whose `id` begins so")
	fs.StringVar(&f.tenant, "of", "", "only jobs of this `tenant`")
	fs.IntVar(&f.limit, "limit", 100, "at most so many `jobs` (0: all)")
	fs.BoolVar(&f.asJSON, "json", false, "print one JSON object a line")
	return c
}

// check refuses words that no job can match.
func (f jobFilter) check() error {
	states := []string{"open", string(queue.Queued), string(queue.Running), string(queue.Done), string(queue.Failed), string(queue.Cancelled), string(queue.Expired)}
	for _, s := range f.states {
		if !slices.Contains(states, s) {
			return fmt.Errorf("--state %q: one of %s", s, strings.Join(states, ", "))
		}
	}
	for _, k := range f.kinds {
		if k != string(queue.Ingest) && k != string(queue.Resume) {
			return fmt.Errorf("--kind %q: ingest or resume", k)
		}
	}
	if f.limit < 0 {
		return fmt.Errorf("--limit %d: 0 or more", f.limit)
	}
	return nil
}

func (f jobFilter) matches(s queue.Status) bool {
	open := slices.Contains(f.states, "open") && !s.State.Final()
	if len(f.states) > 0 && !open && !slices.Contains(f.states, string(s.State)) {
		return false
	}
	if len(f.kinds) > 0 && !slices.Contains(f.kinds, string(s.Job.Kind)) {
		return false
	}
	for _, l := range f.labels {
		name, value, exact := strings.Cut(l, "=")
		have, is := s.Job.Labels[name]
		if !is || exact && have != value {
			return false
		}
	}
	return strings.HasPrefix(s.Job.Model, f.model) && (f.tenant == "" || s.Job.Tenant == f.tenant)
}

func (a *app) jobsLs(ctx context.Context, f jobFilter) error {
	if err := f.check(); err != nil {
		return badInput(err)
	}
	var found []queue.Status
	err := a.withQueue(ctx, func(q *jetstream.Queue) error {
		found = nil
		return q.List(ctx, func(s queue.Status) bool {
			if f.matches(s) {
				found = append(found, s)
			}
			return true
		})
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b queue.Status) int {
		return cmp.Or(b.Job.Submitted.Compare(a.Job.Submitted), cmp.Compare(a.Job.ID, b.Job.ID))
	})
	left := 0
	if f.limit > 0 && len(found) > f.limit {
		left = len(found) - f.limit
		found = found[:f.limit]
	}
	if f.asJSON {
		enc := json.NewEncoder(a.out)
		for _, s := range found {
			if err := enc.Encode(s); err != nil {
				return err
			}
		}
	} else if err := a.printJobs(found); err != nil {
		return err
	}
	if left > 0 {
		a.note("%d older jobs are not shown (--limit)", left)
	}
	return nil
}

func (a *app) printJobs(jobs []queue.Status) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tSTATE\tPRIORITY\tAGE\tTRIES\tWHAT\tOUTCOME")
	for _, s := range jobs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", s.Job.ID, s.State, s.Job.Priority, age(time.Since(s.Job.Submitted)), s.Attempts, what(s.Job), brief(s))
	}
	return t.Flush()
}

// age is a time that people read at a glance.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// what says in a few words what a job asks for.
func what(j queue.Job) string {
	switch {
	case j.Ingest != nil:
		return fmt.Sprintf("read %.40s, %d tokens", j.Ingest.Name, j.Ingest.Tokens)
	case j.Resume != nil:
		return fmt.Sprintf("go on from %.16s, %d tokens at most", j.Resume.Handle, j.Resume.MaxTokens)
	}
	return string(j.Kind)
}

// brief says in a few words what became of a job.
func brief(s queue.Status) string {
	switch s.State {
	case queue.Done:
		if r, err := result[worker.Receipt](s); err == nil && r.Handle != "" {
			return r.Handle[:min(len(r.Handle), 20)]
		}
		if r, err := result[worker.Result](s); err == nil {
			return fmt.Sprintf("%d tokens, ended by %s", r.Usage.Generated, r.FinishReason)
		}
	case queue.Failed:
		if s.Dead != nil {
			return s.Dead.Class
		}
	case queue.Cancelled, queue.Expired:
		if r, err := result[worker.Receipt](s); err == nil && r.Handle != "" {
			return fmt.Sprintf("%.20s, the first %d tokens", r.Handle, r.Partial)
		}
	case queue.Running:
		if s.Cancel != nil {
			return "is to be cancelled"
		}
	case queue.Queued:
		if s.Waits != "" {
			return fmt.Sprintf("waits: %.120s", s.Waits)
		}
	}
	return ""
}

// outcomeOf says where the result of a job is, or why there is none.
func outcomeOf(s queue.Status) string {
	id := s.Job.ID
	switch s.State {
	case queue.Done:
		if s.Job.Kind == queue.Ingest {
			if r, err := result[worker.Receipt](s); err == nil {
				if r.Tokens.Unread > 0 {
					return fmt.Sprintf("done: the ids of %d tokens are %s", r.Tokens.Total, r.Handle)
				}
				return fmt.Sprintf("done: the state of %d tokens is %s", r.Tokens.Total, r.Handle)
			}
		}
		if r, err := result[worker.Result](s); err == nil {
			return fmt.Sprintf("done: %d tokens were generated, ended by %s ('lector jobs show %s' has the text)", r.Usage.Generated, r.FinishReason, id)
		}
		return fmt.Sprintf("done ('lector jobs show --json %s' has the result)", id)
	case queue.Failed:
		if s.Dead == nil {
			return "failed, and nobody said why"
		}
		return fmt.Sprintf("failed (%s): %s; %d tokens are stored ('lector jobs dead replay %s' goes on from there)", s.Dead.Class, s.Dead.Reason, s.Dead.LastGood, id)
	case queue.Cancelled, queue.Expired:
		return endedLine(s)
	case queue.Running:
		return fmt.Sprintf("is being worked on, attempt %d", s.Attempts)
	}
	if s.Waits != "" {
		return "waits: " + s.Waits
	}
	return "waits"
}

func endedLine(s queue.Status) string {
	line := string(s.State)
	switch {
	case s.Cancel != nil && s.State == queue.Cancelled:
		if s.Cancel.By != "" {
			line += " by " + s.Cancel.By
		}
		if s.Cancel.Reason != "" {
			line += ": " + s.Cancel.Reason
		}
	case s.State == queue.Expired:
		line += ": its deadline was " + s.Job.Deadline.UTC().Format(time.RFC3339)
	}
	if r, err := result[worker.Receipt](s); err == nil && r.Handle != "" {
		return fmt.Sprintf("%s; the state of the first %d tokens is kept as %s", line, r.Partial, r.Handle)
	}
	return line + "; nothing of it was kept"
}

func newJobsShow(a *app) *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "show JOB",
		Short: "Say all that is known of a job",
		Long:  "show says all that is known of a job. JOB is its id, or a beginning that no other job's has.",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withJob(c.Context(), args[0], func(_ *jetstream.Queue, s queue.Status) error {
				if asJSON {
					return json.NewEncoder(a.out).Encode(s)
				}
				return a.printJob(s)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the status as JSON")
	return c
}

func (a *app) printJob(s queue.Status) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("job", "%s", s.Job.ID)
	row("asks to", "%s", what(s.Job))
	row("state", "%s", outcomeOf(s))
	row("model", "%s", s.Job.Model)
	row("priority", "%s", s.Job.Priority)
	row("submitted", "%s", s.Job.Submitted.UTC().Format(time.RFC3339))
	if !s.Job.Deadline.IsZero() {
		row("deadline", "%s", s.Job.Deadline.UTC().Format(time.RFC3339))
	}
	row("changed", "%s", s.Updated.UTC().Format(time.RFC3339))
	row("attempts", "%d", s.Attempts)
	if s.Job.Tenant != "" {
		row("tenant", "%s", s.Job.Tenant)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Job.Labels)) {
		row("label", "%s=%s", name, s.Job.Labels[name])
	}
	if r, err := result[worker.Receipt](s); err == nil && s.Job.Kind == queue.Ingest && len(s.Result) > 0 {
		if r.Tokens.Unread > 0 {
			row("tokens", "%d, kept as ids alone", r.Tokens.Total)
		} else {
			row("tokens", "%d: %d restored, %d computed", r.Tokens.Total, r.Tokens.Restored, r.Tokens.Computed)
		}
		row("host", "%s, %.1f s", r.Host, r.Seconds.Total)
		if r.StoreSync != "" {
			row("store", "did not wait for the disk (--store-sync %s): a power cut may take the state", r.StoreSync)
		}
		for _, e := range r.Early {
			row("handle at", "%d: %s", e.Tokens, e.Handle)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r, err := result[worker.Result](s); err == nil && s.Job.Kind == queue.Resume && s.State == queue.Done {
		fmt.Fprintf(a.out, "\n%s\n", r.Text)
	}
	return nil
}

// withJob runs f on the job that a person names.
func (a *app) withJob(ctx context.Context, name string, f func(*jetstream.Queue, queue.Status) error) error {
	return a.withQueue(ctx, func(q *jetstream.Queue) error {
		s, err := findJob(ctx, q, name)
		if err != nil {
			return err
		}
		return f(q, s)
	})
}

// findJob finds a job by its id or by a beginning of it.
func findJob(ctx context.Context, q *jetstream.Queue, name string) (queue.Status, error) {
	s, err := q.Status(ctx, name)
	if !errors.Is(err, queue.ErrUnknown) {
		return s, err
	}
	var found []queue.Status
	err = q.List(ctx, func(s queue.Status) bool {
		if strings.HasPrefix(s.Job.ID, name) {
			found = append(found, s)
		}
		return true
	})
	switch {
	case err != nil:
		return s, err
	case len(found) == 0 || name == "":
		return s, badInput(fmt.Errorf("job %q is not known here ('lector jobs ls' lists those that are)", name))
	case len(found) > 1:
		return s, badInput(fmt.Errorf("%d jobs begin with %q: give more of the id", len(found), name))
	}
	return found[0], nil
}

func newJobsCancel(a *app) *cobra.Command {
	reason := ""
	c := &cobra.Command{
		Use:   "cancel JOB...",
		Short: "End jobs; what a document's reading has stored is kept under a handle",
		Long: "cancel ends jobs that wait at once, and those that are worked on at their next boundary. What has been read of a document by\n" +
			"then is kept, under a handle that 'lector jobs show' prints.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.jobsCancel(c.Context(), args, reason) },
	}
	c.Flags().StringVar(&reason, "reason", "", "`text` that those who watch the job shall read")
	return c
}

func (a *app) jobsCancel(ctx context.Context, names []string, reason string) error {
	return a.withQueue(ctx, func(q *jetstream.Queue) error {
		for ; len(names) > 0; names = names[1:] {
			s, err := findJob(ctx, q, names[0])
			if err != nil {
				return err
			}
			before := s.State
			if s, err = q.Cancel(ctx, s.Job.ID, queue.Cancellation{At: time.Now().UTC(), Reason: reason, By: whoAmI()}); err != nil {
				return err
			}
			switch {
			case before.Final():
				fmt.Fprintf(a.out, "%s had ended: %s\n", s.Job.ID, outcomeOf(s))
			case s.State.Final():
				fmt.Fprintf(a.out, "%s %s\n", s.Job.ID, outcomeOf(s))
			default:
				fmt.Fprintf(a.out, "%s ends at its next boundary ('lector jobs wait %s')\n", s.Job.ID, s.Job.ID)
			}
		}
		return nil
	})
}
