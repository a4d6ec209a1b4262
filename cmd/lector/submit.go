package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lector/engine"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
)

// submitFlags are what a submit says beside the documents.
type submitFlags struct {
	order              order
	jsonl, ids         bool
	dry, wait, asJSON  bool
	again              bool
	limits             fetchLimits
	maxBytes, deadline string
	labels             []string
}

// order is what may be said of one document; a line of --jsonl says it for its own.
type order struct {
	Key      string            `json:"key,omitempty"`
	Name     string            `json:"name,omitempty"`
	Priority string            `json:"priority,omitempty"`
	TTL      time.Duration     `json:"-"`
	TTLText  string            `json:"ttl,omitempty"`      // such as 720h
	Deadline string            `json:"deadline,omitempty"` // such as 2h or 2026-01-02T15:04:05Z
	Capacity int               `json:"capacity,omitempty"`
	HandleAt []int             `json:"handle_at,omitempty"`
	Keep     keepState         `json:"keep_state,omitempty"` // all or none
	Labels   map[string]string `json:"labels,omitempty"`
}

func newSubmit(a *app) *cobra.Command {
	var f submitFlags
	c := &cobra.Command{
		Use:   "submit DOCUMENT...",
		Short: "Put documents into the queue for workers to read",
		Long: "submit stores documents and queues a job for each, without reading them: workers do that. It prints a job id a line. The same\n" +
			"document again finds the job that stands. A DOCUMENT is a file, a pattern such as 'books/*.txt', - for standard input,\n" +
			"s3://bucket/name (or a prefix ending in /) with the settings of --store, http:// or https://, or object://bucket/name in the\n" +
			"NATS object store of the queue. With --jsonl each line of standard input is an object with source, text or tokens, and any of\n" +
			"key, name, priority, ttl, deadline, capacity, handle_at, keep_state and labels, which flags set otherwise.",
		RunE: func(c *cobra.Command, args []string) error { return a.submitAll(c.Context(), args, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.order.Key, "key", "", "`text` that makes the job's id in place of document and settings: another submit with it finds this job")
	fs.StringVar(&f.order.Name, "name", "", "`name` for people (default: the file's)")
	fs.StringVar(&f.order.Priority, "priority", worker.DefaultPriority, "`priority`: high, normal or low")
	fs.DurationVar(&f.order.TTL, "ttl", 0, "how long the handle is valid (default: for good)")
	fs.StringVar(&f.deadline, "deadline", "", "`time` by which the result is wanted, such as 2h or 2026-01-02T15:04:05Z; then work on it ends")
	fs.IntVar(&f.order.Capacity, "capacity", 0, "most `tokens` of document, prompt and text together (default: the model's limit)")
	fs.IntSliceVar(&f.order.HandleAt, "handle-at", nil, "make a handle on the way at the first boundary at or after so many `tokens`; several, ascending")
	f.order.Keep.flag(fs)
	fs.StringArrayVar(&f.labels, "label", nil, "`name=value` for finding the job again; may be given again")
	fs.BoolVar(&f.jsonl, "jsonl", false, "read orders from standard input, one JSON object a line")
	fs.BoolVar(&f.ids, "tokens", false, "the documents are lists of token ids, not text")
	fs.BoolVar(&f.again, "again", false, "where a job of the same order was cancelled or expired, make another one")
	fs.BoolVar(&f.dry, "dry-run", false, "say how large the states will be and how long reading takes, and submit nothing")
	fs.BoolVar(&f.wait, "wait", false, "wait until the jobs have ended, and say how")
	fs.BoolVar(&f.asJSON, "json", false, "print each job's forecast and state as JSON")
	fs.StringVar(&f.maxBytes, "max-bytes", "256M", "most `bytes` of one document")
	fs.DurationVar(&f.limits.timeout, "fetch-timeout", 5*time.Minute, "most `time` to fetch one document")
	fs.IntVar(&f.limits.redirects, "redirects", 5, "most `redirects` to follow for one document")
	return c
}

// complete checks the flags and puts those together that belong together.
func (f *submitFlags) complete(args []string) (err error) {
	if f.limits.bytes, err = sizeOf("--max-bytes", f.maxBytes); err != nil {
		return err
	}
	switch {
	case f.jsonl && len(args) > 0:
		return errors.New("--jsonl reads its orders from standard input: give no documents beside it")
	case !f.jsonl && len(args) == 0:
		return errors.New("give a document, or --jsonl")
	case f.limits.bytes > maxInput:
		return fmt.Errorf("--max-bytes %s: at most %d MiB", f.maxBytes, maxInput>>20)
	case f.limits.timeout <= 0 || f.limits.redirects < 0:
		return errors.New("--fetch-timeout and --redirects: above 0, and 0 or more")
	case f.order.TTL < 0:
		return fmt.Errorf("--ttl %v: a handle cannot expire before it is made", f.order.TTL)
	}
	f.order.Deadline = f.deadline
	if _, err := f.order.Keep.order(); err != nil {
		return err
	}
	f.order.Labels, err = parseLabels(f.labels)
	return err
}

func parseLabels(labels []string) (map[string]string, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, l := range labels {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--label %q is not name=value", l)
		}
		out[name] = value
	}
	return out, nil
}

// parseDeadline reads a moment, or a time from now.
func parseDeadline(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, wrong := time.ParseDuration(text)
		if wrong != nil {
			return at, fmt.Errorf("deadline %q is neither a time such as 2h nor a moment such as 2026-01-02T15:04:05Z", text)
		}
		at = now.Add(d)
	}
	if !at.After(now) {
		return at, fmt.Errorf("deadline %q has passed", text)
	}
	return at.UTC(), nil
}

func (a *app) submitAll(ctx context.Context, args []string, f submitFlags) error {
	if err := f.complete(args); err != nil {
		return badInput(err)
	}
	a.visits = true
	s, err := a.openSession(ctx)
	if err != nil {
		return err
	}
	defer func() { a.leave(ctx, s.server); s.closeNoted() }()
	sub := &submission{session: s, flags: f}
	if sub.rate, err = sub.lastRate(ctx); err != nil {
		return err
	}
	if f.jsonl {
		err = sub.lines(ctx)
	} else {
		err = sub.sources(ctx, args)
	}
	if err != nil {
		return err
	}
	return sub.finish(ctx)
}

// submission is one run of the command.
type submission struct {
	*session
	flags  submitFlags
	rate   float64 // tokens a second that the last document was read with; 0: unknown
	jobs   []queue.Status
	total  forecast
	number int // of orders
}

// document is one that is to be submitted.
type document struct {
	name string
	text []byte
	ids  bool
}

// one submits one document.
func (s *submission) one(ctx context.Context, d document, o order) error {
	tokens, err := documentTokens(s.model, d.text, d.name, d.ids)
	if err != nil {
		return err
	}
	if err := s.admit(tokens, o.Capacity); err != nil {
		return fmt.Errorf("submit %s: %w", d.name, err)
	}
	if o.Name == "" {
		o.Name = d.name
	}
	if s.number++; s.number > 1 && o.Key != "" && o.Key == s.flags.order.Key {
		return badInput(errors.New("--key stands for one document: submit others without it, or with keys of their own in --jsonl"))
	}
	cost := s.forecast(len(tokens), o.Keep)
	s.total.add(cost)
	if s.flags.dry {
		return s.say(o.Name, cost, queue.Status{})
	}
	status, err := s.enqueue(ctx, tokens, o)
	if err != nil {
		return fmt.Errorf("submit %s: %w", d.name, err)
	}
	s.jobs = append(s.jobs, status)
	return s.say(o.Name, cost, status)
}

// enqueue stores the document and submits the job for it.
func (s *submission) enqueue(ctx context.Context, tokens []engine.Token, o order) (queue.Status, error) {
	if o.Priority != "" && !slices.Contains(jetstream.Priorities(), o.Priority) {
		return queue.Status{}, badInput(fmt.Errorf("the priority %q does not exist: use one of %s", o.Priority, strings.Join(jetstream.Priorities(), ", ")))
	}
	now := time.Now().UTC()
	deadline, err := parseDeadline(o.Deadline, now)
	if err != nil {
		return queue.Status{}, badInput(err)
	}
	keep, err := o.Keep.order()
	if err != nil {
		return queue.Status{}, err
	}
	digest, err := worker.StoreDocument(ctx, s.space, tokens)
	if err != nil {
		return queue.Status{}, err
	}
	opt := worker.IngestOptions{
		Tokens: len(tokens), Name: o.Name, Capacity: o.Capacity, TTL: o.TTL, Priority: o.Priority, Submitted: now,
		Deadline: deadline, Labels: o.Labels, Tenant: s.app.tenant, HandleAt: o.HandleAt, Key: o.Key, KeepState: keep,
	}
	for {
		job := worker.NewIngest(s.identity, digest, opt)
		if err := job.Validate(); err != nil {
			return queue.Status{}, badInput(err)
		}
		status, err := s.submit(ctx, job)
		if err != nil {
			return status, err
		}
		if status.Job.Ingest != nil && status.Job.Ingest.Document != digest.String() {
			return status, badInput(fmt.Errorf("--key %q stands for another document already: job %s", o.Key, status.Job.ID))
		}
		if !s.flags.again || status.State != queue.Cancelled && status.State != queue.Expired {
			return status, nil
		}
		opt.Again = status.Job.ID
	}
}

// say prints what came of one order: the id alone goes to standard output.
func (s *submission) say(name string, cost forecast, status queue.Status) error {
	if s.flags.asJSON {
		return json.NewEncoder(s.app.out).Encode(struct {
			Name     string      `json:"name"`
			Job      string      `json:"job,omitempty"`
			State    queue.State `json:"state,omitempty"`
			Forecast forecast    `json:"forecast"`
		}{name, status.Job.ID, status.State, cost})
	}
	if s.flags.dry {
		_, err := fmt.Fprintf(s.app.out, "%s: %s\n", name, cost)
		return err
	}
	state := ""
	if status.State != queue.Queued {
		state = "; the job that stands " + outcomeOf(status)
	}
	s.app.note("%s: %s%s", name, cost, state)
	_, err := fmt.Fprintln(s.app.out, status.Job.ID)
	return err
}

// finish waits for the jobs where that is wanted.
func (s *submission) finish(ctx context.Context) error {
	if s.number > 1 && !s.flags.asJSON {
		s.app.note("together: %s", s.total)
	}
	if s.server != nil && len(s.jobs) > 0 && !s.flags.dry {
		s.app.note(noteNobodyReads)
	}
	if !s.flags.wait {
		return nil
	}
	var worst error
	for _, job := range s.jobs {
		status, err := s.untilFinal(ctx, job.Job.ID)
		if err != nil {
			return err
		}
		s.app.note("%s %s", status.Job.ID, outcomeOf(status))
		if err := endOf(status); err != nil {
			worst = err
		}
	}
	return worst
}

const noteNobodyReads = "no other lector has this data folder open: 'lector worker' reads what waits in its queue"

// untilFinal is the status that a job ends with, whoever keeps the queue meanwhile.
func (s *submission) untilFinal(ctx context.Context, job string) (status queue.Status, err error) {
	owner := s.server != nil
	err = s.atQueue(ctx, func() (err error) {
		if s.server != nil && !owner {
			s.app.note(noteNobodyReads)
		}
		status, err = untilFinal(ctx, s.joined, job)
		return err
	})
	return status, err
}

// line is one order of --jsonl.
type line struct {
	Source string  `json:"source,omitempty"`
	Text   string  `json:"text,omitempty"`
	Tokens []int32 `json:"tokens,omitempty"`
	order
}

// lines submits every order of standard input. One that is wrong ends the command and says which line it is; those before
// stay submitted, and are found again when the input is mended and given once more.
func (s *submission) lines(ctx context.Context) error {
	dec := json.NewDecoder(s.app.in)
	dec.DisallowUnknownFields()
	for n := 1; dec.More(); n++ {
		l := line{order: s.flags.order}
		l.HandleAt, l.Labels = nil, nil // decoded anew, not into what the flags say
		if err := dec.Decode(&l); err != nil {
			return badInput(fmt.Errorf("order %d of --jsonl: %w", n, err))
		}
		if err := s.line(ctx, l); err != nil {
			return fmt.Errorf("order %d of --jsonl: %w", n, err)
		}
	}
	if s.number == 0 {
		return badInput(errors.New("standard input holds no order"))
	}
	return nil
}

func (s *submission) line(ctx context.Context, l line) error {
	if l.HandleAt == nil {
		l.HandleAt = s.flags.order.HandleAt
	}
	if l.Labels == nil {
		l.Labels = s.flags.order.Labels
	}
	if l.TTLText != "" {
		ttl, err := time.ParseDuration(l.TTLText)
		if err != nil || ttl < 0 {
			return badInput(fmt.Errorf("ttl %q is not a time such as 720h", l.TTLText))
		}
		l.TTL = ttl
	}
	given := 0
	for _, is := range []bool{l.Source != "", l.Text != "", len(l.Tokens) > 0} {
		if is {
			given++
		}
	}
	if given != 1 {
		return badInput(fmt.Errorf("it has %d of source, text and tokens: give one", given))
	}
	switch {
	case l.Source != "":
		return s.source(ctx, l.Source, l.order)
	case l.Text != "":
		return s.one(ctx, document{name: "text", text: []byte(l.Text), ids: false}, l.order)
	}
	b, err := json.Marshal(l.Tokens)
	if err != nil {
		return err
	}
	return s.one(ctx, document{name: "tokens", text: b, ids: true}, l.order)
}

// sources submits what the arguments name.
func (s *submission) sources(ctx context.Context, args []string) error {
	for _, arg := range args {
		if err := s.source(ctx, arg, s.flags.order); err != nil {
			return err
		}
	}
	return nil
}

// source submits every document that one name stands for.
func (s *submission) source(ctx context.Context, name string, o order) error {
	f := fetcher{app: s.app, limits: s.flags.limits}
	names, err := f.expand(ctx, name)
	if err != nil {
		return err
	}
	for _, one := range names {
		var text []byte
		var base string
		err := s.atQueue(ctx, func() (err error) {
			f.queue = s.joined
			text, base, err = f.fetch(ctx, one)
			return err
		})
		if err != nil {
			return err
		}
		if len(text) == 0 {
			return badInput(fmt.Errorf("document %s is empty: there is nothing to read", one))
		}
		if err := s.one(ctx, document{name: base, text: text, ids: s.flags.ids}, o); err != nil {
			return err
		}
	}
	return nil
}

// isFile says that a name is that of a file, whatever characters it has.
func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
