package tracing_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/dir"
	"lector/cmd/lector/tracing"
	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue/queuetest"
	"lector/worker"
)

// kept is an exporter whose spans outlive its shutdown.
type kept struct{ *tracetest.InMemoryExporter }

func (kept) Shutdown(context.Context) error { return nil }

func newTracer(t *testing.T, e sdktrace.SpanExporter, name string) *tracing.Tracer {
	t.Helper()
	tr, err := tracing.New(t.Context(), e, tracing.Process{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// world is a client and a worker that share a queue and a store, each drawing for itself.
type world struct {
	*testing.T
	queue          *queuetest.Memory
	store          *cachetest.Memory
	client, worker *tracing.Tracer
	exported       kept // by both
	toy            *enginetest.Toy
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, queue: queuetest.NewMemory(nil), store: cachetest.NewMemory(), toy: &enginetest.Toy{}}
	w.exported = kept{tracetest.NewInMemoryExporter()}
	w.client, w.worker = newTracer(t, w.exported, "client"), newTracer(t, w.exported, "worker")
	return w
}

// ingest submits a document as a client and works on it as a worker.
func (w *world) ingest(tokens int) {
	w.Helper()
	ctx := w.Context()
	ids, err := enginetest.ToyTokenizer{}.Encode(strings.Repeat("a bright cold day ", tokens))
	if err != nil {
		w.Fatal(err)
	}
	ids = ids[:tokens]
	space := &cache.Space{Store: w.store}
	document, err := worker.StoreDocument(ctx, space, ids)
	if err != nil {
		w.Fatal(err)
	}
	id, err := w.toy.Identity()
	if err != nil {
		w.Fatal(err)
	}
	var fields []cache.Field
	for _, f := range id.Fields {
		fields = append(fields, cache.Field(f))
	}
	job := worker.NewIngest(cache.NewIdentity(fields, id.Class, id.Grid, nil), document, worker.IngestOptions{Tokens: len(ids), Submitted: time.Now()})
	sub, end := w.client.Start(ctx, "submit")
	job.Trace = w.client.Trace(sub)
	_, err = w.queue.Submit(sub, job)
	end(err)
	if err != nil {
		w.Fatal(err)
	}
	d, err := w.queue.Next(ctx)
	if err != nil {
		w.Fatal(err)
	}
	far := &worker.Worker{
		Queue: w.queue, Space: &cache.Space{Store: w.worker.Store(w.store)}, Engine: w.toy, Tokenizer: enginetest.ToyTokenizer{},
		Host: "far", Tracer: w.worker,
	}
	if err := far.Handle(ctx, d); err != nil {
		w.Fatal(err)
	}
}

// spans ends the drawing and returns all of it.
func (w *world) spans() tracetest.SpanStubs {
	w.Helper()
	if err := errors.Join(w.client.Close(w.Context()), w.worker.Close(w.Context())); err != nil {
		w.Fatal(err)
	}
	return w.exported.GetSpans()
}

// path is the names from the root to a span.
func path(spans tracetest.SpanStubs, s tracetest.SpanStub) string {
	names := []string{s.Name}
	for s.Parent.IsValid() {
		i := slices.IndexFunc(spans, func(o tracetest.SpanStub) bool { return o.SpanContext.SpanID() == s.Parent.SpanID() })
		if i < 0 {
			return "lost > " + strings.Join(names, " > ")
		}
		s = spans[i]
		names = slices.Insert(names, 0, s.Name)
	}
	return strings.Join(names, " > ")
}

// From the submit over the worker's parts to the puts into the store there is one trace.
func TestOneTraceFromSubmitToStore(t *testing.T) {
	w := newWorld(t)
	const cells = 3
	w.ingest(cells * enginetest.ToyGrid)
	spans := w.spans()
	count := map[string]int{}
	traces := map[trace.TraceID]bool{}
	puts := 0
	for _, s := range spans {
		count[path(spans, s)]++
		traces[s.SpanContext.TraceID()] = true
		if s.Name == "store put" {
			puts++
		}
	}
	if len(traces) != 1 {
		t.Errorf("%d traces", len(traces))
	}
	for want, n := range map[string]int{
		"submit": 1, "submit > ingest": 1, "submit > ingest > restore": 1, "submit > ingest > claim": cells,
		"submit > ingest > prefill": cells, "submit > ingest > store": cells, "submit > ingest > publish": 1,
		"submit > ingest > publish > queue publish_handle": 1,
	} {
		if count[want] != n {
			t.Errorf("%d spans %q, want %d; there are %v", count[want], want, n, count)
		}
	}
	if count["submit > ingest > store > store put"] < 3*cells+2 || count["submit > ingest > publish > store put"] != 0 { // manifest and handle go with the last cell
		t.Errorf("puts are missing: %v", count)
	}
	objects := 0
	for range w.store.List(t.Context(), "default/") {
		objects++
	}
	if puts < objects-1 { // the document was put before the submit
		t.Errorf("%d puts for %d objects", puts, objects)
	}
}

// What fails is marked where it failed; that an object is not there is an answer.
func TestFailuresAreMarked(t *testing.T) {
	w := newWorld(t)
	w.toy.BeforePrefill = enginetest.FailPrefill(2, engine.ErrDevice)
	w.ingest(2 * enginetest.ToyGrid)
	spans := w.spans()
	for _, s := range spans {
		failed := s.Status.Code == codes.Error
		p := path(spans, s)
		if want := p == "submit > ingest" || p == "submit > ingest > prefill" && s.Status.Description != ""; failed != want {
			t.Errorf("%s: %+v", p, s.Status)
		}
	}
}

// A text that names no trace begins one of its own, and breaks nothing.
func TestJoinTakesAnything(t *testing.T) {
	tr := newTracer(t, kept{tracetest.NewInMemoryExporter()}, "x")
	for _, text := range []string{"", "nonsense", "00-0-0-00", strings.Repeat("x", 1<<16)} {
		ctx := tr.Join(t.Context(), text)
		if got := tr.Trace(ctx); got != "" {
			t.Errorf("%.20q joined %s", text, got)
		}
	}
	ctx, end := tr.Start(t.Context(), "a")
	end(nil)
	name := tr.Trace(ctx)
	if got := tr.Trace(tr.Join(context.Background(), name)); got != name || len(name) != 55 {
		t.Errorf("%q came back as %q", name, got)
	}
}

// A store that is drawn keeps the contract, within a span and without.
func TestTracedStoreConforms(t *testing.T) {
	cachetest.Run(t, func(t *testing.T) cache.Store {
		return newTracer(t, kept{tracetest.NewInMemoryExporter()}, "x").Store(cachetest.NewMemory())
	})
}

// Where the store can stage it still can, and the puts are drawn.
func TestTracedStagerConforms(t *testing.T) {
	exported := kept{tracetest.NewInMemoryExporter()}
	tr := newTracer(t, exported, "x")
	open := func(t *testing.T) cache.Store {
		d, err := dir.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return tr.Store(d)
	}
	cachetest.RunStager(t, func(t *testing.T) (cache.Stager, cache.Store) {
		s := open(t)
		return s.(cache.Stager), s
	})
	ctx, end := tr.Start(t.Context(), "store")
	batch, err := open(t).(cache.Stager).Stage(ctx, []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	staged, err := batch.Add(ctx, strings.NewReader("x"), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(batch.Sync(ctx), staged.Put(ctx, "a/b", cache.IfAbsent)); err != nil {
		t.Fatal(err)
	}
	if err := batch.Close(); err != nil {
		t.Fatal(err)
	}
	end(nil)
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	puts := 0
	for _, s := range exported.GetSpans() {
		if path(exported.GetSpans(), s) == "store > store put" {
			puts++
		}
	}
	if puts != 1 {
		t.Errorf("%d puts are drawn", puts)
	}
}

// failing is an exporter whose collector is away.
type failing struct{ kept }

func (failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("connection refused")
}

// Spans that cannot be sent cost nothing but a word at the end.
func TestExporterFails(t *testing.T) {
	tr := newTracer(t, failing{}, "x")
	for range 3 {
		_, end := tr.Start(t.Context(), "a")
		end(nil)
	}
	err := tr.Close(t.Context())
	if err == nil || !strings.Contains(err.Error(), "3 spans of traces could not be sent: connection refused") {
		t.Error(err)
	}
}
