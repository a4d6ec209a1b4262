// Package client is for programs that have documents read and ask for texts: it submits jobs to the queue of a fleet,
// follows them, and fetches what became of them. It lies beside the worker, whose orders and results these are; it
// loads no model.
//
// What it promises:
//
//  1. An ingest that is submitted twice is one job. It ends with a handle that holds: where that of an earlier job has
//     expired or is gone, the document is read again.
//  2. The tokens of a text come once each and in order, whichever attempt made them, however often the caller attaches
//     anew and from whichever place. Where a second attempt differs from what was given, that is ErrRetold.
//  3. Waiting ends when the job does: the status is asked for beside the events, which may be lost or too old.
//  4. A call that gives up leaves the job alone; the same call goes on with it.
//
// It refuses to choose a queue or a store: the caller opens them, and closes them. A Client may be used from any
// goroutine. Start reading at Client, then the example.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"lector/cache"
	"lector/queue"
	"lector/worker"
)

var (
	// ErrCancelled says that a job was cancelled before it was done.
	ErrCancelled = errors.New("job was cancelled")
	// ErrExpired says that a job's deadline passed before it was done.
	ErrExpired = errors.New("job's deadline has passed")
	// ErrKey says that an order's key stands for another document.
	ErrKey = errors.New("key stands for another document")
)

// Failed is a job that will not be tried again.
type Failed struct {
	Job  string
	Dead queue.Dead
}

// Error is the reason of the dead letter.
func (f *Failed) Error() string { return f.Dead.Reason }

// Queue is what a client needs of a queue.
type Queue interface {
	queue.Jobs
	queue.Events
	queue.Handles
}

// Client submits and follows jobs.
type Client struct {
	Queue Queue
	Space *cache.Space // the tenant's store, the same that the workers have
	// Poll is how often the status is asked for beside the events. Default 1 s.
	Poll time.Duration
}

// Ingest stores a document's token ids and submits the job that reads them, for workers of the model that id names.
// The status is of the job that stands: a document that was read before is done at once. o.Tokens is set here, and
// o.Submitted and o.Tenant, the store's, where they are zero. Errors: ErrKey.
func (c *Client) Ingest(ctx context.Context, id cache.Identity, tokens []int32, o worker.IngestOptions) (queue.Status, error) {
	document, err := worker.StoreDocument(ctx, c.Space, tokens)
	if err != nil {
		return queue.Status{}, err
	}
	o.Tokens = len(tokens)
	if o.Tenant == "" {
		o.Tenant = c.Space.Tenant
	}
	if o.Submitted.IsZero() {
		o.Submitted = time.Now()
	}
	for {
		status, err := c.submit(ctx, worker.NewIngest(id, document, o))
		if in := status.Job.Ingest; err == nil && (in == nil || in.Document != document.String()) {
			return status, fmt.Errorf("submit job %s: %w: %q", status.Job.ID, ErrKey, o.Key)
		}
		if err == nil && (status.State == queue.Cancelled || status.State == queue.Expired) {
			o.Again = status.Job.ID
			continue
		}
		if err != nil || status.State != queue.Done {
			return status, err
		}
		var r worker.Receipt
		if err := decode(status, &r); err != nil {
			return status, err
		}
		holds, err := c.holds(ctx, r.HandleDigest)
		if err != nil || holds {
			return status, err
		}
		o.Again += r.HandleDigest // of each job before: what is lost twice is read twice
	}
}

// holds says that a handle is stored and has not expired, and that what it names is there: somebody may have deleted
// objects by age.
func (c *Client) holds(ctx context.Context, handle string) (bool, error) {
	d, err := cache.ParseDigest(handle)
	if err != nil {
		return false, fmt.Errorf("read receipt: %w", err)
	}
	h, err := c.Space.Handle(ctx, d)
	if err == nil {
		err = h.Valid(time.Now())
	}
	var m cache.Manifest
	if err == nil {
		m, err = c.Space.Manifest(ctx, h.Manifest)
	}
	if err == nil {
		err = c.Space.Complete(ctx, m)
	}
	if errors.Is(err, cache.ErrExpired) || errors.Is(err, cache.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Resume submits a job that goes on from a stored handle: order.Handle is its digest. Each call is another job. The
// model is the one that made the state, unless o.Model names another's workers, such as those of a newer salt; the handle is
// checked first; o.Submitted is set where it is zero.
// Errors: cache.ErrNotFound, cache.ErrExpired.
func (c *Client) Resume(ctx context.Context, order queue.ResumeOrder, o worker.ResumeOptions) (queue.Status, error) {
	d, err := cache.ParseDigest(order.Handle)
	if err != nil {
		return queue.Status{}, fmt.Errorf("resume: order names the handle: %w", err)
	}
	h, err := c.Space.Handle(ctx, d)
	if err != nil {
		return queue.Status{}, err
	}
	if err := h.Valid(time.Now()); err != nil {
		return queue.Status{}, err
	}
	m, err := c.Space.Manifest(ctx, h.Manifest)
	if err != nil {
		return queue.Status{}, err
	}
	if o.Tenant == "" {
		o.Tenant = c.Space.Tenant
	}
	if o.Submitted.IsZero() {
		o.Submitted = time.Now()
	}
	return c.submit(ctx, worker.NewResume(m.Identity, order, o))
}

func (c *Client) submit(ctx context.Context, job queue.Job) (queue.Status, error) {
	status, err := c.Queue.Submit(ctx, job)
	if err != nil {
		return status, fmt.Errorf("submit job: %w", err)
	}
	return status, nil
}

// Follow calls heard with every event of a job so far and from now on, and returns the status in which it ended.
// heard may be nil. A job that is not known is queue.ErrUnknown.
func (c *Client) Follow(ctx context.Context, job string, heard func(queue.Event)) (queue.Status, error) {
	if _, err := c.Queue.Status(ctx, job); err != nil {
		return queue.Status{}, fmt.Errorf("follow job %s: %w", job, err)
	}
	w := newWatch(ctx, c, job)
	defer w.stop()
	followed := c.Queue.Follow(w.ctx, job, func(e queue.Event) bool {
		w.heard()
		if heard != nil {
			heard(e)
		}
		return !e.Type.Final()
	})
	w.stop()
	if err := context.Cause(ctx); err != nil {
		return queue.Status{}, fmt.Errorf("follow job %s: %w", job, err)
	}
	if followed != nil && !w.ended {
		return queue.Status{}, fmt.Errorf("follow job %s: %w", job, followed)
	}
	return c.final(ctx, job)
}

// final reads the status of a job whose end was told. The word may be ahead of what is read.
func (c *Client) final(ctx context.Context, job string) (queue.Status, error) {
	for {
		s, err := c.Queue.Status(ctx, job)
		if err != nil || s.State.Final() {
			return s, err
		}
		select {
		case <-time.After(c.poll()):
		case <-ctx.Done():
			return s, fmt.Errorf("follow job %s: %w", job, context.Cause(ctx))
		}
	}
}

func (c *Client) poll() time.Duration {
	if c.Poll > 0 {
		return c.Poll
	}
	return time.Second
}

// Receipt waits for an ingest and returns what became of it. Errors: *Failed, ErrCancelled, ErrExpired.
func (c *Client) Receipt(ctx context.Context, job string) (worker.Receipt, error) {
	var r worker.Receipt
	status, err := c.Follow(ctx, job, nil)
	if err != nil {
		return r, err
	}
	return r, decode(status, &r)
}

// Result waits for a resume and returns its texts and what they took. Errors: *Failed, ErrCancelled, ErrExpired.
func (c *Client) Result(ctx context.Context, job string) (worker.Result, error) {
	status, err := c.Follow(ctx, job, nil)
	if err != nil {
		return worker.Result{}, err
	}
	return c.result(ctx, status)
}

// result decodes the result of a resume that has ended, from the store where it is too large for the status.
func (c *Client) result(ctx context.Context, status queue.Status) (worker.Result, error) {
	var r worker.Result
	if err := decode(status, &r); err != nil || !r.Stored {
		return r, err
	}
	body, err := c.Space.Result(ctx, status.Job.ID)
	if err != nil {
		return r, fmt.Errorf("read result of job %s: %w", status.Job.ID, err)
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("decode result of job %s: %w", status.Job.ID, err)
	}
	r.Stored = false
	return r, nil
}

// Handle returns the handle that a job has published: of a document, or of a text's extended state. queue.ErrUnknown
// while there is none.
func (c *Client) Handle(ctx context.Context, job string) (cache.Digest, cache.Handle, error) {
	body, err := c.Queue.Handle(ctx, job)
	if err != nil {
		return cache.Digest{}, cache.Handle{}, err
	}
	h, err := cache.DecodeHandle(body)
	if err != nil {
		return cache.Digest{}, h, fmt.Errorf("read the handle of job %s: %w", job, err)
	}
	return cache.Sum(body), h, nil
}

// Ended says how a job that is final ended: nil when it is done, else *Failed, ErrCancelled or ErrExpired.
func Ended(s queue.Status) error {
	switch {
	case s.State == queue.Done:
		return nil
	case s.State == queue.Failed && s.Dead != nil:
		return &Failed{s.Job.ID, *s.Dead}
	case s.State == queue.Cancelled && s.Cancel != nil && s.Cancel.Reason != "":
		return fmt.Errorf("job %s: %w: %s", s.Job.ID, ErrCancelled, s.Cancel.Reason)
	case s.State == queue.Cancelled:
		return fmt.Errorf("job %s: %w", s.Job.ID, ErrCancelled)
	case s.State == queue.Expired:
		return fmt.Errorf("job %s: %w: it was %s", s.Job.ID, ErrExpired, s.Job.Deadline.UTC().Format("2006-01-02 15:04:05 MST"))
	}
	return fmt.Errorf("job %s ended as %s", s.Job.ID, s.State)
}

// decode reads what a job that has ended left, or says why it left nothing.
func decode(s queue.Status, out any) error {
	if err := Ended(s); err != nil {
		return err
	}
	if err := json.Unmarshal(s.Result, out); err != nil {
		return fmt.Errorf("decode result of job %s: %w", s.Job.ID, err)
	}
	return nil
}
