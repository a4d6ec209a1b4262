package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"lector/cache"
	"lector/cache/s3"
	"lector/engine"
	"lector/engine/cpu"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
	"lector/worker/client"
)

// newDocuments draws token ids: most documents begin like one of a few others.
func newDocuments(seed uint64, n int) (all [][]int32) {
	random := rand.New(rand.NewPCG(seed, 3))
	draw := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(random.IntN(250))
		}
		return ids
	}
	var beginnings [][]int32
	for range 6 {
		beginnings = append(beginnings, draw(400+random.IntN(1600)))
	}
	for range n {
		document := draw(1 + random.IntN(700))
		if random.IntN(4) > 0 {
			document = append(slices.Clone(beginnings[random.IntN(len(beginnings))]), document...)
		}
		all = append(all, document)
	}
	return all
}

// work is what was asked for, seen without wires.
type work struct {
	fleet     *fleet
	queue     *jetstream.Queue
	client    *client.Client
	identity  cache.Identity
	documents map[string][]int32 // by job
	submitted int
	final     map[string]bool // jobs
	leases    *audit
}

// open connects to the fleet.
func (f *fleet) open(ctx context.Context) (*work, error) {
	store, err := s3.Open(ctx, s3.Options{Bucket: bucketName, Endpoint: "http://" + f.s3Address, PathStyle: true, AccessKey: accessKey, SecretKey: secretKey})
	if err != nil {
		return nil, err
	}
	w := &work{fleet: f, documents: map[string][]int32{}, final: map[string]bool{}}
	if w.identity, err = f.identity(); err != nil {
		return nil, err
	}
	if w.queue, err = jetstream.Open(ctx, jetstream.Config{URL: f.nats(), AckWait: ackWait}); err != nil {
		return nil, err
	}
	if w.leases, err = newAudit(ctx, f.nats()); err != nil {
		return nil, errors.Join(err, w.queue.Close())
	}
	w.client = &client.Client{Queue: w.queue, Space: &cache.Space{Store: store}}
	return w, nil
}

// identity is that of the workers' model.
func (f *fleet) identity() (cache.Identity, error) {
	c, err := weights.Open(f.model)
	if err != nil {
		return cache.Identity{}, err
	}
	e, err := qwen4exp.Open(c, cpu.New(cpu.Options{}), qwen4exp.Options{Tokenizer: "none"})
	if err != nil {
		return cache.Identity{}, errors.Join(err, c.Close())
	}
	id, err := e.Identity()
	fields := make([]cache.Field, len(id.Fields))
	for i, x := range id.Fields {
		fields[i] = cache.Field(x)
	}
	return cache.NewIdentity(fields, id.Class, id.Grid, nil), errors.Join(err, e.Close(), c.Close())
}

func (w *work) close() error { return errors.Join(w.leases.close(), w.queue.Close()) }

// pace is the time between two documents.
const pace = 500 * time.Millisecond

// submit submits those documents whose time has come, and returns the rest. What the queue does not take now, such as a
// cluster between two leaders, it takes at the next call.
func (w *work) submit(ctx context.Context, documents [][]int32, began time.Time) [][]int32 {
	for len(documents) > 0 && time.Duration(w.submitted)*pace < time.Since(began) {
		status, err := w.client.Ingest(ctx, w.identity, documents[0], worker.IngestOptions{Name: fmt.Sprint("document ", w.submitted)})
		if err != nil {
			break
		}
		w.documents[status.Job.ID] = documents[0]
		documents = documents[1:]
		w.submitted++
	}
	return documents
}

// wait submits the documents and makes trouble until two thirds of the limit are over or nothing is left to do, and then
// waits for the rest in peace.
func (w *work) wait(ctx context.Context, t *troubles, documents [][]int32) error {
	began, all := time.Now(), len(documents)
	deadline, _ := ctx.Deadline()
	noisy, calm := context.WithDeadline(ctx, time.Now().Add(time.Until(deadline)*2/3))
	defer calm()
	trouble := make(chan error, 1)
	go func() { trouble <- t.run(noisy) }()
	said := time.Now()
	for {
		documents = w.submit(ctx, documents, began)
		left, err := w.left(ctx)
		if err != nil {
			return err
		}
		over := len(left)+len(documents) == 0
		if time.Since(said) > 10*time.Second || over {
			said = time.Now()
			w.fleet.say("%d of %d documents are done, %d troubles", len(w.documents)-len(left), all, t.total())
		}
		if over {
			calm()
			return <-trouble
		}
		if noisy.Err() != nil { // nobody else starts again what ended by itself
			if err := t.restart(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; %d documents are not submitted, and these jobs are left: %v", context.Cause(ctx), len(documents), left)
		case err := <-trouble:
			if err != nil {
				return err
			}
			trouble <- nil
		case <-time.After(time.Second):
		}
	}
}

// left are the jobs that are not final. Those that are stay so.
func (w *work) left(ctx context.Context) (ids []string, err error) {
	for id := range maps.Keys(w.documents) {
		if w.final[id] {
			continue
		}
		var status queue.Status
		for status, err = w.queue.Status(ctx, id); err != nil && ctx.Err() == nil; status, err = w.queue.Status(ctx, id) {
			time.Sleep(200 * time.Millisecond) // a node may be on its way
		}
		if err != nil {
			return nil, fmt.Errorf("look at job %s: %w", id, err)
		}
		if !status.State.Final() {
			ids = append(ids, id+" ("+string(status.State)+")")
			continue
		}
		w.final[id] = true
	}
	return ids, nil
}

// check is what has to hold in the end.
func (w *work) check(ctx context.Context, t *troubles, began time.Time) error {
	var bad []error
	attempts := 0
	cut := t.count["drained"] // attempts that ended before their job did; a drain's do not count
	cells := map[cache.Key]int{}
	for id, tokens := range w.documents {
		status, err := w.queue.Status(ctx, id)
		if err != nil {
			return err
		}
		if status.State != queue.Done {
			bad = append(bad, fmt.Errorf("job %s is %s: %+v", id, status.State, status.Dead))
			continue
		}
		attempts += status.Attempts
		cut += status.Attempts - 1
		if err := w.verify(ctx, id, len(tokens)); err != nil {
			bad = append(bad, fmt.Errorf("job %s: %w", id, err))
			continue
		}
		ends := cache.Boundaries(len(tokens), w.identity.Grid)
		from := 0
		for i, key := range cache.Keys(w.identity.Producer, tokens, ends) {
			cells[key] = ends[i] - from
			from = ends[i]
		}
	}
	unique := 0
	for _, n := range cells {
		unique += n
	}
	told, err := w.computed(ctx)
	if err != nil {
		return err
	}
	w.fleet.say("%d documents in %v: %d attempts; %d tokens in %d unique cells, computed %d (%.2f times)", len(w.documents),
		time.Since(began).Round(time.Second), attempts, unique, len(cells), told, float64(told)/float64(max(unique, 1)))
	for _, name := range slices.Sorted(maps.Keys(t.count)) {
		w.fleet.say("  %3d times %s", t.count[name], name)
	}
	claims, taken, err := w.leases.report()
	if err != nil {
		bad = append(bad, err)
	}
	w.fleet.say("  %d claims, %d of them on chunks whose worker's time was up", claims, taken)
	if most := unique + 2*w.identity.Grid*(t.total()+1); told > most {
		bad = append(bad, fmt.Errorf("%d tokens were computed: %d are unique, and %d troubles explain at most %d", told, unique, t.total(), most))
	}
	// An attempt that is cut short between storing a cell and telling of it leaves cells that are found and never told of.
	if least := unique - 2*w.identity.Grid*cut; told < least {
		bad = append(bad, fmt.Errorf("%d tokens were computed: %d are unique, and %d attempts that were cut short explain at least %d", told, unique, cut, least))
	}
	return errors.Join(bad...)
}

// verify reads again all that a job's handle names.
func (w *work) verify(ctx context.Context, job string, tokens int) error {
	_, h, err := w.client.Handle(ctx, job)
	if err != nil {
		return err
	}
	m, err := w.client.Space.Manifest(ctx, h.Manifest)
	if err != nil {
		return err
	}
	if h.Tokens != tokens || m.Tokens != tokens {
		return fmt.Errorf("its handle has %d tokens and its manifest %d, the document %d", h.Tokens, m.Tokens, tokens)
	}
	_, err = w.client.Space.Verify(ctx, m)
	return err
}

// computed sums the cells that the events of all attempts tell of.
func (w *work) computed(ctx context.Context) (tokens int, err error) {
	for id := range w.documents {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := w.queue.Follow(ctx, id, func(e queue.Event) bool {
			if e.Type == queue.EventProgress {
				tokens += cellOf(e)
			}
			return e.Type != queue.EventDone && e.Type != queue.EventFailed
		})
		cancel()
		if err != nil {
			return tokens, fmt.Errorf("read the story of job %s: %w", id, err)
		}
	}
	return tokens, nil
}

// cellOf is how many tokens a progress event's chunk had.
func cellOf(e queue.Event) int {
	var stats engine.ChunkStats
	if err := json.Unmarshal(e.Stats, &stats); err != nil {
		return 0 // check then says that the counts do not add up
	}
	return stats.Tokens
}
