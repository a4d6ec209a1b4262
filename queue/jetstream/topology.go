package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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

	// topologyVersion is the version of the streams as a whole, kept in their metadata. 1: first.
	topologyVersion = 1
	versionKey      = "lector.topology"

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
func cancelBell(job string) string    { return "lector.bell.cancel." + job }

// topology is every stream as it is created. Direct reads are off: they may come from a replica that lags, and
// records and handles are read to decide.
func topology(cfg Config) []jetstream.StreamConfig {
	streams := []jetstream.StreamConfig{
		{
			Name: jobsStream, Description: "jobs that wait or are worked on",
			Subjects:  []string{jobsSubjects},
			Retention: jetstream.WorkQueuePolicy,
			Discard:   jetstream.DiscardNew, MaxMsgs: cmp.Or(cfg.MaxJobs, defaultMaxJobs),
			Duplicates: cmp.Or(cfg.Dedupe, defaultDedupe),
		},
		{
			Name: eventsStream, Description: "what happens to jobs",
			Subjects: []string{"lector.events.*"},
			Discard:  jetstream.DiscardOld,
			MaxBytes: cmp.Or(cfg.MaxEventBytes, defaultMaxEventBytes), MaxAge: cmp.Or(cfg.MaxEventAge, defaultMaxEventAge),
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
		streams[i].Metadata = map[string]string{versionKey: strconv.Itoa(topologyVersion)}
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

// ErrTopology says that the streams of a server are not those that this lector needs; the message says which.
var ErrTopology = errors.New("the streams of this server are not ready: run 'lector queue init'")

// Change is one thing that was done to make the streams what they must be.
type Change struct {
	Stream string `json:"stream"`
	What   string `json:"what"` // "created", or the settings that changed
}

// check compares the streams that there are with those that are needed, and changes nothing.
func check(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	var wrong []string
	for _, want := range topology(cfg) {
		s, err := js.Stream(ctx, want.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			wrong = append(wrong, fmt.Sprintf("stream %s is missing", want.Name))
			continue
		case err != nil:
			return fmt.Errorf("open stream %s: %w", want.Name, err)
		}
		have := s.CachedInfo().Config
		if err := notLater(have); err != nil {
			return err
		}
		if d := differences(want, have, cfg); len(d) > 0 {
			wrong = append(wrong, fmt.Sprintf("stream %s: %s", want.Name, strings.Join(d, ", ")))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w (%s)", ErrTopology, strings.Join(wrong, "; "))
	}
	return nil
}

// ensure creates the streams that are missing and mends those that would break a promise. Doing it again changes nothing.
func ensure(ctx context.Context, js jetstream.JetStream, cfg Config) ([]Change, error) {
	var done []Change
	for _, want := range topology(cfg) {
		what, err := ensureStream(ctx, js, want, cfg)
		if err != nil {
			return done, err
		}
		if what != "" {
			done = append(done, Change{Stream: want.Name, What: what})
		}
	}
	return done, nil
}

func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, cfg Config) (string, error) {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, want)
		if err == nil {
			return "created", nil
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody was faster
			s, err = js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return "", fmt.Errorf("create stream %s: %w", want.Name, err)
	}
	have := s.CachedInfo().Config
	if err := notLater(have); err != nil {
		return "", err
	}
	d := differences(want, have, cfg)
	if len(d) == 0 && have.Metadata[versionKey] == want.Metadata[versionKey] {
		return "", nil
	}
	what := strings.Join(d, ", ")
	if have.Retention != want.Retention || have.Storage != want.Storage {
		return "", fmt.Errorf("stream %s exists with other settings, which NATS cannot change: %s: remove it, or use another account", want.Name, what)
	}
	if _, err := js.UpdateStream(ctx, migrated(want, have, cfg)); err != nil {
		return "", fmt.Errorf("change stream %s, where %s: %w", want.Name, what, err)
	}
	return cmp.Or(what, "marked as version "+want.Metadata[versionKey]), nil
}

// migrated is the stream that there is with every setting changed on which a promise hangs, and with the limits that were
// asked for. What an operator chose beside these stays.
func migrated(want, have jetstream.StreamConfig, cfg Config) jetstream.StreamConfig {
	out := have
	out.Description, out.Subjects = want.Description, want.Subjects
	out.Discard, out.DiscardNewPerSubject, out.MaxMsgsPerSubject = want.Discard, want.DiscardNewPerSubject, want.MaxMsgsPerSubject
	out.AllowDirect, out.AllowRollup, out.DenyDelete = want.AllowDirect, want.AllowRollup, want.DenyDelete
	if want.MaxAge == 0 || want.Name == eventsStream && cfg.MaxEventAge > 0 {
		out.MaxAge = want.MaxAge
	}
	if want.Name == jobsStream && cfg.MaxJobs > 0 {
		out.MaxMsgs = want.MaxMsgs
	}
	if want.Name == jobsStream && cfg.Dedupe > 0 {
		out.Duplicates = want.Duplicates
	}
	if want.Name == eventsStream && cfg.MaxEventBytes > 0 {
		out.MaxBytes = want.MaxBytes
	}
	if cfg.Replicas > 0 {
		out.Replicas = want.Replicas
	}
	out.Metadata = maps.Clone(have.Metadata)
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	maps.Copy(out.Metadata, want.Metadata)
	return out
}

// notLater refuses a stream that a later lector laid out.
func notLater(have jetstream.StreamConfig) error {
	v, err := strconv.Atoi(cmp.Or(have.Metadata[versionKey], "0"))
	if err != nil || v > topologyVersion {
		return fmt.Errorf("stream %s has the layout %q, this lector knows version %d: use a later lector", have.Name, have.Metadata[versionKey], topologyVersion)
	}
	return nil
}

// differences lists the settings on which a promise hangs, and the limits that were asked for. Other limits are the
// operator's to choose, except where they would drop what must be kept.
func differences(want, have jetstream.StreamConfig, cfg Config) []string {
	var d []string
	differ := func(name string, want, have any) {
		if fmt.Sprint(want) != fmt.Sprint(have) {
			d = append(d, fmt.Sprintf("%s is %v, not %v", name, have, want))
		}
	}
	subjects := slices.Sorted(slices.Values(have.Subjects))
	differ("subjects", want.Subjects, subjects)
	differ("retention", want.Retention, have.Retention)
	differ("storage", want.Storage, have.Storage)
	differ("discard", want.Discard, have.Discard)
	differ("discard_new_per_subject", want.DiscardNewPerSubject, have.DiscardNewPerSubject)
	differ("max_msgs_per_subject", max(want.MaxMsgsPerSubject, 0), max(have.MaxMsgsPerSubject, 0))
	differ("allow_direct", want.AllowDirect, have.AllowDirect)
	if want.MaxAge == 0 || want.Name == eventsStream && cfg.MaxEventAge > 0 {
		differ("max_age", want.MaxAge, have.MaxAge)
	}
	if want.Name == jobsStream && cfg.MaxJobs > 0 {
		differ("max_msgs", want.MaxMsgs, have.MaxMsgs)
	}
	if want.Name == jobsStream && cfg.Dedupe > 0 {
		differ("duplicate_window", want.Duplicates, have.Duplicates)
	}
	if want.Name == eventsStream && cfg.MaxEventBytes > 0 {
		differ("max_bytes", want.MaxBytes, have.MaxBytes)
	}
	if cfg.Replicas > 0 {
		differ("num_replicas", want.Replicas, have.Replicas)
	}
	return d
}

// durable is the name of the consumer of one kind and priority.
func (q *Queue) durable(key consumerKey) string { return durable(key, q.cfg.Model) }

func durable(key consumerKey, model string) string {
	return fmt.Sprintf("%s_%s_%s", key.kind, model, key.priority)
}

// ensureConsumer opens the durable consumer that all workers of one kind, model and priority share: filters of a
// work queue must not overlap. It returns its name.
func (q *Queue) ensureConsumer(ctx context.Context, key consumerKey) (string, error) {
	want := consumerConfig(key, q.cfg.Model, q.cfg.AckWait)
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

func consumerConfig(key consumerKey, model string, ackWait time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       durable(key, model),
		FilterSubject: jobSubject(key.kind, model, key.priority),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxDeliver:    -1,
		MaxAckPending: -1, // jobs that wait out a Retry count as pending: a limit would stall the others
	}
}
