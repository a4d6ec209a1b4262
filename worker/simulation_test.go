package worker_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

// The simulation: three processes with toy engines share a queue and a store while a seed decides, effect by effect,
// what fails before it takes place, what fails after it did, who dies, who stalls until the delivery has gone to
// somebody else, and who is drained. Time is not real. A seed fixes what every process meets; which of two goroutines
// goes first is the scheduler's.
//
//	go test ./worker -run TestSchedules -sim.seed 17 -sim.schedules 1
var (
	simSeed      = flag.Uint64("sim.seed", 1, "seed of the first schedule")
	simSchedules = flag.Int("sim.schedules", schedules, "schedules to run")
)

const (
	simHosts  = 3
	simFaults = 24              // of one schedule; what follows is calm, so that it ends
	simLimit  = 6 * time.Hour   // for all jobs to end
	simStall  = 4 * time.Minute // at most
)

// The eight promises of package worker hold under every schedule.
func TestSchedules(t *testing.T) {
	for i := range *simSchedules {
		seed := *simSeed + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("again with: go test ./worker -run TestSchedules -sim.seed %d -sim.schedules 1", seed)
				}
			}()
			newSimulation(t, seed).run()
		})
		if t.Failed() {
			return
		}
	}
}

// simulation is one schedule.
type simulation struct {
	*rig
	seed   uint64
	random *rand.Rand // of the whole, used before the processes start

	mu     sync.Mutex
	left   int // faults that may still come
	losses int // faults, deaths, stalls and drains that came: each may cost a cell
	toys   []*enginetest.Toy
	lost   map[string]bool // host and job of an attempt that was told that it is lost
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	return &simulation{rig: newRig(t), seed: seed, random: rand.New(rand.NewPCG(seed, 1)), left: simFaults, lost: map[string]bool{}}
}

// order is a job with what has to come of it.
type order struct {
	id, handle, text string
}

func (s *simulation) run() {
	documents, orders := s.submitDocuments()
	ctx, end := context.WithCancel(s.Context())
	var hosts sync.WaitGroup
	for i := range simHosts {
		hosts.Go(func() { s.host(ctx, i) })
	}
	orders = append(orders, s.submitResumes(documents)...)
	until := time.Now().Add(simLimit)
	for !(s.ended(orders) && s.queue.Pending() == 0) && time.Now().Before(until) {
		time.Sleep(10 * time.Second)
	}
	end()
	hosts.Wait()
	s.check(documents, orders)
}

// submitDocuments orders a few documents of which some begin alike; half of them is submitted twice.
func (s *simulation) submitDocuments() (documents map[string][]int32, orders []order) {
	documents = map[string][]int32{}
	for range 1 + s.random.IntN(4) {
		tokens := prose(3 + s.random.IntN(7*enginetest.ToyGrid))
		if s.random.IntN(3) == 0 { // another beginning
			tokens = append(prose(29)[11:], tokens...)
		}
		job := s.ingestJob(tokens, worker.IngestOptions{TTL: time.Hour * 1000, Submitted: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)})
		for range 1 + s.random.IntN(2) {
			s.submit(job)
		}
		if _, ok := documents[job.ID]; !ok {
			documents[job.ID] = tokens
			orders = append(orders, order{id: job.ID, handle: s.expected(tokens, job)})
		}
	}
	return documents, orders
}

// expected is the handle that a worker without any faults, in a world of its own, makes of a document.
func (s *simulation) expected(tokens []int32, job queue.Job) string {
	alone := newRig(s.T)
	if _, err := worker.StoreDocument(s.Context(), alone.Space, tokens); err != nil {
		s.Fatal(err)
	}
	alone.submit(job)
	alone.turn(alone.Worker)
	return alone.receipt(job.ID).HandleDigest
}

// submitResumes asks for texts behind a handle that stands before any fault.
func (s *simulation) submitResumes(documents map[string][]int32) (orders []order) {
	for id, tokens := range documents {
		if s.random.IntN(2) == 0 {
			continue
		}
		alone := newRig(s.T)
		o := queue.ResumeOrder{Text: fmt.Sprint("and ", id[:4]), MaxTokens: 6 + s.random.IntN(20), Drafts: s.random.IntN(3), Keep: s.random.IntN(2) == 0}
		job := s.ingestJob(tokens, worker.IngestOptions{TTL: time.Hour * 1000, Submitted: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)})
		o.Handle = s.expected(tokens, job)
		// The same order in a world of its own says what the text is.
		if _, err := worker.StoreDocument(s.Context(), alone.Space, tokens); err != nil {
			s.Fatal(err)
		}
		alone.submit(job)
		alone.turn(alone.Worker)
		resume := s.resumeJob(o.Handle, o)
		alone.submit(resume)
		alone.turn(alone.Worker)
		var want worker.Result
		alone.result(resume.ID, &want)
		// The handle has to be there: whoever asks has it from a finished job.
		for until := time.Now().Add(simLimit); s.status(job.ID).State != queue.Done; time.Sleep(5 * time.Second) {
			if time.Now().After(until) {
				return orders // check says that the document was not read
			}
		}
		s.submit(resume)
		orders = append(orders, order{id: resume.ID, handle: want.HandleDigest, text: want.Text})
	}
	return orders
}

func (s *simulation) ended(orders []order) bool {
	for _, o := range orders {
		if !s.status(o.id).State.Final() {
			return false
		}
	}
	return true
}

// host runs one process after another in one place: as one dies, the next starts.
func (s *simulation) host(ctx context.Context, place int) {
	random := rand.New(rand.NewPCG(s.seed, uint64(100+place)))
	for generation := 0; ctx.Err() == nil; generation++ {
		life, end := context.WithCancel(ctx)
		p := &process{simulation: s, name: fmt.Sprintf("%d.%d", place, generation), random: random}
		toy := &enginetest.Toy{BeforePrefill: func(context.Context, int, []int32) error { return p.look() }}
		s.mu.Lock()
		s.toys = append(s.toys, toy)
		s.mu.Unlock()
		w := s.another(toy)
		w.Host, w.Queue, w.Config.Attempts = p.name, chaosQueue{s.queue, p}, 1000
		w.Config.KeepSpread, w.Config.RetryMax = 3, time.Minute
		w.Space = &cache.Space{Store: chaosStore{audit{s.store, s}, p}}
		if random.IntN(2) == 0 {
			w.Space.Spool = cachetest.NewSpool(w.Space.Store, 1<<20)
		}
		if drain := time.Duration(1+random.IntN(600)) * time.Second; random.IntN(3) == 0 && s.take() {
			time.AfterFunc(drain, end)
		}
		_ = w.Run(life) // of a dead process or a drained one
		end()
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(1+random.IntN(20)) * time.Second):
		}
	}
}

// take says whether another fault may come, and counts it.
func (s *simulation) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		return false
	}
	s.left--
	s.losses++
	return true
}

// check is what has to be true at the end of every schedule.
func (s *simulation) check(documents map[string][]int32, orders []order) {
	computed, whole := 0, 0
	for _, toy := range s.toys {
		computed += toy.Prefilled()
		if n := toy.Open(); n != 0 {
			s.Errorf("%d sequences are still open", n)
		}
	}
	for _, tokens := range documents {
		whole += len(tokens)
	}
	for _, o := range orders {
		st := s.status(o.id)
		switch {
		case st.State != queue.Done:
			s.Errorf("job %s ends as %s: %+v", o.id, st.State, st.Dead)
		case o.text != "":
			var got worker.Result
			s.result(o.id, &got)
			if got.Text != o.text || got.HandleDigest != o.handle {
				s.Errorf("promise 5: job %s says %q and handle %s, want %q and %s", o.id, got.Text, got.HandleDigest, o.text, o.handle)
			}
			whole += got.Usage.Prefilled + got.Usage.Generated
		default:
			if got := s.receipt(o.id).HandleDigest; got != o.handle {
				s.Errorf("promise 5: job %s has the handle %s, want %s", o.id, got, o.handle)
			}
		}
	}
	if n := s.queue.Pending(); n != 0 {
		s.Errorf("promise 4: %d jobs are still in the queue", n)
	}
	// A fault costs at most the cell at hand and the one on its way to the store, or a resume from its beginning.
	if most := whole + s.losses*(2*enginetest.ToyGrid+40); computed > most {
		s.Errorf("promise 8: %d tokens were computed for %d with %d faults, at most %d", computed, whole, s.losses, most)
	}
	for h, err := range s.space().Handles(context.Background()) {
		if err == nil {
			err = s.verify(h.Handle.Manifest)
		}
		if err != nil {
			s.Errorf("promise 3: a handle shows, and %v", err)
		}
	}
}

// space reads the store as it is.
func (s *simulation) space() *cache.Space { return &cache.Space{Store: s.store} }

func (s *simulation) verify(d cache.Digest) error {
	ctx := context.Background()
	m, err := s.space().Manifest(ctx, d)
	if err == nil {
		_, err = s.space().Verify(ctx, m)
	}
	return err
}

// audit looks at every put that the store takes: promises 1, 2 and 7.
type audit struct {
	cache.Store
	s *simulation
}

func (a audit) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	before, stood := a.s.store.Bytes(name)
	if err := a.Store.Put(ctx, name, body, size, how); err != nil {
		return err
	}
	now, _ := a.s.store.Bytes(name)
	kind := kindOf(name)
	if fixed := map[string]bool{"nodes": true, "manifests": true, "handles": true, "blobs": true}[kind]; fixed && stood && !bytes.Equal(before, now) {
		a.s.Errorf("promise 2: %s was replaced by other bytes", name)
	}
	var err error
	switch kind {
	case "nodes":
		err = a.node(now)
	case "manifests":
		var m cache.Manifest
		if m, err = cache.DecodeManifest(now); err == nil {
			_, err = a.s.space().Verify(context.Background(), m)
		}
	case "handles":
		var h cache.Handle
		if h, err = cache.DecodeHandle(now); err == nil {
			err = a.s.verify(h.Manifest)
		}
	}
	if err != nil {
		a.s.Errorf("promise 1: %s is stored, and %v", name, err)
	}
	return nil
}

// node checks that the rows of a node are there, and that it ends where a state is defined.
func (a audit) node(b []byte) error {
	n, err := cache.DecodeNode(b)
	if err != nil {
		return err
	}
	if n.From%enginetest.ToyGrid != 0 {
		a.s.Errorf("promise 7: a node begins at %d", n.From)
	}
	have := strings.Join(a.s.store.Names(), "\n")
	for _, blob := range n.Rows {
		if !strings.Contains(have, blob.Digest.String()) {
			return fmt.Errorf("its rows %s are not there", blob.Digest)
		}
	}
	return nil
}
