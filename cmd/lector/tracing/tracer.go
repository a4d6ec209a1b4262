package tracing

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"lector/worker"
)

// scope names the code that draws.
const scope = "lector"

// traceparent is the header of the W3C form.
const traceparent = "traceparent"

// Process names who draws, where the standard variables do not.
type Process struct {
	Name    string // service.name
	Version string
}

// Tracer draws spans. It may be used from any goroutine.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	failures *failures
}

var _ worker.Tracer = (*Tracer)(nil)

// Open begins to draw to an OTLP endpoint over HTTP. Endpoint, headers, TLS, sampler and resource come from the
// standard variables (OTEL_EXPORTER_OTLP_*, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES). Nothing
// is sent before the first span ends.
func Open(ctx context.Context, p Process) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("open trace exporter: %w", err)
	}
	return New(ctx, exporter, p)
}

// New begins to draw to an exporter, in batches.
func New(ctx context.Context, exporter sdktrace.SpanExporter, p Process) (*Tracer, error) {
	from, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", p.Name), attribute.String("service.version", p.Version)),
		resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe process to traces: %w", err)
	}
	failures := &failures{SpanExporter: exporter}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(from), sdktrace.WithBatcher(failures))
	return &Tracer{provider: provider, tracer: provider.Tracer(scope), failures: failures}, nil
}

// Close sends what is left, and says what could not be sent since the start.
func (t *Tracer) Close(ctx context.Context) error {
	return errors.Join(t.provider.Shutdown(ctx), t.failures.told())
}

// Join makes ctx one of the trace that a traceparent names.
func (t *Tracer) Join(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: text})
}

// Trace names the trace and the span of ctx for others to join, "" where there is none.
func (t *Tracer) Trace(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// Start begins a span below that of ctx.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, func(error)) {
	ctx, span := t.tracer.Start(ctx, name)
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Int says a number of the span of ctx.
func (t *Tracer) Int(ctx context.Context, key string, value int64) {
	trace.SpanFromContext(ctx).SetAttributes(attribute.Int64(key, value))
}

// Text says a text of the span of ctx.
func (t *Tracer) Text(ctx context.Context, key, value string) {
	trace.SpanFromContext(ctx).SetAttributes(attribute.String(key, value))
}

// failures keeps the last error of an exporter instead of a global handler, and how many spans it cost.
type failures struct {
	sdktrace.SpanExporter
	mu    sync.Mutex
	spans int
	last  error
}

// ExportSpans never fails: what is lost is told at the end.
func (f *failures) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := f.SpanExporter.ExportSpans(ctx, spans); err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.spans += len(spans)
		f.last = err
	}
	return nil
}

func (f *failures) told() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return nil
	}
	return fmt.Errorf("%d spans of traces could not be sent: %w", f.spans, f.last)
}

// drawn says that ctx is within a span.
func drawn(ctx context.Context) bool { return trace.SpanContextFromContext(ctx).IsValid() }
