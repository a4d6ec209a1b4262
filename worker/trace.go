package worker

import "context"

// Tracer draws what a worker does as spans of time, each below the one that its context is of. Nobody draws unless
// cmd gives one, and then nothing is spent on it.
type Tracer interface {
	// Join makes ctx one of the trace that a job names (queue.Job.Trace). A text that names none changes nothing.
	Join(ctx context.Context, trace string) context.Context
	// Start begins a span below that of ctx. end ends it, with the error that its work came to.
	Start(ctx context.Context, name string) (inside context.Context, end func(error))
	// Int and Text say more about the span of ctx, before its end.
	Int(ctx context.Context, key string, value int64)
	Text(ctx context.Context, key, value string)
}

// noEnd ends a span that nobody draws.
func noEnd(error) {}

// traced begins the span of the whole attempt, in the trace of whoever submitted the job.
func (a *attempt) traced(ctx context.Context) (context.Context, func(error)) {
	if a.Tracer == nil {
		return ctx, noEnd
	}
	ctx, end := a.Tracer.Start(a.Tracer.Join(ctx, a.job.Trace), string(a.job.Kind))
	a.Tracer.Text(ctx, "lector.job", a.job.ID)
	a.Tracer.Text(ctx, "lector.host", a.Host)
	a.Tracer.Int(ctx, "lector.attempt", int64(a.delivery.Attempt()))
	return ctx, end
}

// span begins a span of a part of the work.
func (w *Worker) span(ctx context.Context, name string) (context.Context, func(error)) {
	if w.Tracer == nil {
		return ctx, noEnd
	}
	return w.Tracer.Start(ctx, name)
}

// drawn says how many tokens the span of ctx begins and ends with.
func (w *Worker) drawn(ctx context.Context, from, to int) {
	if w.Tracer == nil {
		return
	}
	w.Tracer.Int(ctx, "lector.from", int64(from))
	w.Tracer.Int(ctx, "lector.to", int64(to))
}
