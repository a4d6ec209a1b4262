package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

const (
	jobsStream    = "LECTOR_JOBS"
	eventsStream  = "LECTOR_EVENTS"
	handlesStream = "LECTOR_HANDLES"
	deadStream    = "LECTOR_DEAD"
	jobsBucket    = "lector_jobs"
	jobsSubjects  = "lector.jobs.*.*.*" // kind, model, priority
	leasesBucket  = "lector_leases"

	// dedupeWindow is how long the server remembers message ids. A submit that crashed halfway and is repeated within
	// it stores nothing twice; later, the second message is dropped at its delivery.
	dedupeWindow = time.Hour
	// leaseAge is after how long a lease nobody renews leaves the bucket.
	leaseAge = 24 * time.Hour
)

func jobSubject(kind queue.Kind, model, priority string) string {
	return fmt.Sprintf("lector.jobs.%s.%s.%s", kind, model, priority)
}
func eventSubject(job string) string  { return "lector.events." + job }
func handleSubject(job string) string { return "lector.handles." + job }
func deadSubject(job string) string   { return "lector.dead." + job }
func jobBell(model string) string     { return "lector.bell.jobs." + model }
func eventBell(job string) string     { return "lector.bell.events." + job }

// topology is every stream as it is created. Direct reads are off: they may come from a replica that lags, and
// records and handles are read to decide.
func topology(cfg Config) []jetstream.StreamConfig {
	streams := []jetstream.StreamConfig{
		{
			Name: jobsStream, Description: "jobs that wait or are worked on",
			Subjects:  []string{jobsSubjects},
			Retention: jetstream.WorkQueuePolicy,
			Discard:   jetstream.DiscardNew, MaxMsgs: cfg.MaxJobs,
			Duplicates: dedupeWindow,
		},
		{
			Name: eventsStream, Description: "what happens to jobs",
			Subjects: []string{"lector.events.*"},
			Discard:  jetstream.DiscardOld, MaxBytes: cfg.MaxEventBytes, MaxAge: cfg.MaxEventAge,
		},
		{
			Name: handlesStream, Description: "the handle of each job: the first that was published",
			Subjects:          []string{"lector.handles.*"},
			MaxMsgsPerSubject: 1,
			Discard:           jetstream.DiscardNew, DiscardNewPerSubject: true,
		},
		{
			Name: deadStream, Description: "jobs that will not be tried again, and why",
			Subjects:          []string{"lector.dead.*"},
			MaxMsgsPerSubject: 1,
		},
		bucket(jobsBucket, "status of each job", 0),
		bucket(leasesBucket, "exclusive claims", leaseAge),
	}
	for i := range streams {
		streams[i].Storage = jetstream.FileStorage
		streams[i].Replicas = max(cfg.Replicas, 1)
	}
	return streams
}

// bucket is the stream behind a key-value bucket, as the client library lays it out but without direct reads.
func bucket(name, description string, age time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "KV_" + name, Description: description,
		Subjects:          []string{"$KV." + name + ".>"},
		MaxMsgsPerSubject: 1,
		MaxAge:            age,
		Discard:           jetstream.DiscardNew,
		AllowRollup:       true,
		DenyDelete:        true,
	}
}

// ensure creates the streams that are missing and refuses those that would break a promise.
func ensure(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	for _, want := range topology(cfg) {
		if err := ensureStream(ctx, js, want, cfg.Replicas > 0); err != nil {
			return err
		}
	}
	return nil
}

func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, replicas bool) error {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody was faster
			s, err = js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("open stream %s: %w", want.Name, err)
	}
	if d := differences(want, s.CachedInfo().Config, replicas); len(d) > 0 {
		return fmt.Errorf("stream %s exists with other settings: %s: change them or use another account",
			want.Name, strings.Join(d, ", "))
	}
	return nil
}

// differences lists the settings on which a promise hangs. Limits are the operator's to choose, except where they
// would drop what must be kept.
func differences(want, have jetstream.StreamConfig, replicas bool) []string {
	var d []string
	differ := func(name string, want, have any) {
		if fmt.Sprint(want) != fmt.Sprint(have) {
			d = append(d, fmt.Sprintf("%s is %v, not %v", name, have, want))
		}
	}
	slices.Sort(have.Subjects)
	differ("subjects", want.Subjects, have.Subjects)
	differ("retention", want.Retention, have.Retention)
	differ("storage", want.Storage, have.Storage)
	differ("discard", want.Discard, have.Discard)
	differ("discard_new_per_subject", want.DiscardNewPerSubject, have.DiscardNewPerSubject)
	differ("max_msgs_per_subject", max(want.MaxMsgsPerSubject, 0), max(have.MaxMsgsPerSubject, 0))
	if want.MaxAge == 0 {
		differ("max_age", want.MaxAge, have.MaxAge)
	}
	if replicas {
		differ("num_replicas", want.Replicas, have.Replicas)
	}
	return d
}

// durable is the name of the consumer of one kind and priority.
func (q *Queue) durable(key consumerKey) string {
	return fmt.Sprintf("%s_%s_%s", key.kind, q.cfg.Model, key.priority)
}

// ensureConsumer opens the durable consumer that all workers of one kind, model and priority share: filters of a
// work queue must not overlap. It returns its name.
func (q *Queue) ensureConsumer(ctx context.Context, key consumerKey) (string, error) {
	want := jetstream.ConsumerConfig{
		Durable:       q.durable(key),
		FilterSubject: jobSubject(key.kind, q.cfg.Model, key.priority),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       q.cfg.AckWait,
		MaxDeliver:    -1,
		MaxAckPending: -1, // jobs that wait out a Retry count as pending: a limit would stall the others
	}
	c, err := q.js.Consumer(ctx, jobsStream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = q.js.CreateConsumer(ctx, jobsStream, want)
	}
	if err != nil {
		return "", fmt.Errorf("open consumer %s: %w", want.Durable, err)
	}
	have := c.CachedInfo().Config
	switch {
	case have.AckWait != want.AckWait:
		err = fmt.Errorf("ack_wait is %v, not %v", have.AckWait, want.AckWait)
	case have.MaxDeliver > 0:
		err = fmt.Errorf("max_deliver is %d, not unlimited", have.MaxDeliver)
	case len(have.BackOff) > 0:
		err = fmt.Errorf("backoff is %v, not empty", have.BackOff)
	case have.AckPolicy != want.AckPolicy || have.FilterSubject != want.FilterSubject:
		err = fmt.Errorf("it filters %q with ack policy %v, not %q with %v", have.FilterSubject, have.AckPolicy, want.FilterSubject, want.AckPolicy)
	}
	if err != nil {
		return "", fmt.Errorf("consumer %s exists with other settings: %w", want.Durable, err)
	}
	return want.Durable, nil
}
