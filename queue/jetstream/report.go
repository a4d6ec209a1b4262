package jetstream

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// Report is what a queue holds now.
type Report struct {
	Server  string         `json:"server"` // name of the server that answers
	Paused  *queue.Pause   `json:"paused,omitempty"`
	Depths  []ModelDepth   `json:"depths"` // one for each kind, model and priority that has jobs or had workers
	Streams []StreamReport `json:"streams"`

	Tenants []queue.TenantUse `json:"tenants"` // that have a quota or open jobs
}

// ModelDepth counts the jobs of one kind, model and priority.
type ModelDepth struct {
	Kind     queue.Kind `json:"kind"`
	Model    string     `json:"model"`
	Priority string     `json:"priority"`
	Waiting  int        `json:"waiting"`  // never handed out, or given back at once
	InHand   int        `json:"in_hand"`  // being worked on, or waiting out the time before another attempt
	Repeated int        `json:"repeated"` // of those in hand: delivered more than once
	Workers  bool       `json:"asked"`    // a worker has ever asked for these
}

// StreamReport is the size of one stream.
type StreamReport struct {
	Name     string    `json:"name"`
	Messages uint64    `json:"messages"`
	Bytes    uint64    `json:"bytes"`
	Most     int64     `json:"max_messages,omitempty"` // 0: no limit
	MaxBytes int64     `json:"max_bytes,omitempty"`    // 0: no limit
	Replicas int       `json:"replicas"`
	Leader   string    `json:"leader,omitempty"` // of a cluster
	Lagging  []string  `json:"lagging,omitempty"`
	Last     time.Time `json:"last"` // message
}

// Report looks at every stream and consumer of the queue.
func (q *Queue) Report(ctx context.Context) (Report, error) {
	r := Report{Server: q.nc.ConnectedServerName()}
	var err error
	if r.Paused, err = q.Paused(ctx); err != nil {
		return r, err
	}
	for _, want := range topology(q.cfg) {
		s, err := q.reportStream(ctx, want.Name)
		if err != nil {
			return r, err
		}
		r.Streams = append(r.Streams, s)
	}
	if r.Depths, err = q.Depths(ctx); err != nil {
		return r, err
	}
	r.Tenants, err = q.Use(ctx)
	return r, err
}

func (q *Queue) reportStream(ctx context.Context, name string) (StreamReport, error) {
	call, cancel := q.call(ctx)
	defer cancel()
	s, err := q.js.Stream(call, name)
	if err != nil {
		return StreamReport{}, q.fail(ctx, err, "look at stream %s", name)
	}
	info := s.CachedInfo()
	out := StreamReport{
		Name: name, Messages: info.State.Msgs, Bytes: info.State.Bytes, Last: info.State.LastTime,
		Most: max(info.Config.MaxMsgs, 0), MaxBytes: max(info.Config.MaxBytes, 0), Replicas: info.Config.Replicas,
	}
	if info.Cluster != nil {
		out.Leader = info.Cluster.Leader
		for _, p := range info.Cluster.Replicas {
			if p.Offline || !p.Current {
				out.Lagging = append(out.Lagging, p.Name)
			}
		}
	}
	return out, nil
}

// Depths counts the jobs in the queue, by kind, model and priority, sorted by these.
func (q *Queue) Depths(ctx context.Context) ([]ModelDepth, error) {
	call, cancel := q.call(ctx)
	defer cancel()
	s, err := q.js.Stream(call, jobsStream)
	if err != nil {
		return nil, q.fail(ctx, err, "count jobs")
	}
	info, err := s.Info(call, jetstream.WithSubjectFilter(jobsSubjects))
	if err != nil {
		return nil, q.fail(ctx, err, "count jobs")
	}
	found := map[string]*ModelDepth{}
	for subject, n := range info.State.Subjects {
		if d := depthOf(found, subject); d != nil {
			d.Waiting = int(n)
		}
	}
	consumers := s.ListConsumers(call)
	for c := range consumers.Info() {
		if d := depthOf(found, c.Config.FilterSubject); d != nil {
			d.Workers, d.InHand, d.Repeated = true, c.NumAckPending, c.NumRedelivered
			d.Waiting = max(d.Waiting-d.InHand, 0)
		}
	}
	if err := consumers.Err(); err != nil {
		return nil, q.fail(ctx, err, "count jobs in hand")
	}
	out := make([]ModelDepth, 0, len(found))
	for _, d := range found {
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b ModelDepth) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Kind, b.Kind), q.rank(a.Priority)-q.rank(b.Priority))
	})
	return out, nil
}

// rank orders priorities, the most urgent first.
func (q *Queue) rank(priority string) int {
	if i := slices.Index(q.cfg.Priorities, priority); i >= 0 {
		return i
	}
	return len(q.cfg.Priorities)
}

// depthOf finds or makes the count of a job subject; nil for what is none.
func depthOf(found map[string]*ModelDepth, subject string) *ModelDepth {
	if d := found[subject]; d != nil {
		return d
	}
	parts := strings.Split(subject, ".")
	if len(parts) != 5 || !strings.HasPrefix(subject, "lector.jobs.") {
		return nil
	}
	d := &ModelDepth{Kind: queue.Kind(parts[2]), Model: parts[3], Priority: parts[4]}
	found[subject] = d
	return d
}
