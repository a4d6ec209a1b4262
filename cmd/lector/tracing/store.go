package tracing

import (
	"context"
	"errors"
	"io"
	"iter"

	"lector/cache"
)

// tracedStore draws the requests that carry objects. Questions are drawn too, since a far store makes them slow; only
// below a span: what no job asks for makes no trace.
type tracedStore struct {
	cache.Store
	t *Tracer
}

// Store is s with its requests drawn. It can stage where s can.
func (t *Tracer) Store(s cache.Store) cache.Store {
	if st, ok := s.(cache.Stager); ok {
		return tracedStager{tracedStore{s, t}, st}
	}
	return tracedStore{s, t}
}

// Probe asks the store beneath whether it does what a writer needs, where it can say so.
func (s tracedStore) Probe(ctx context.Context) error {
	if p, ok := s.Store.(interface{ Probe(context.Context) error }); ok {
		return p.Probe(ctx)
	}
	return nil
}

// start begins a request. An object that exists or is not there is an answer, no failure.
func (s tracedStore) start(ctx context.Context, op, name string) (context.Context, func(error)) {
	if !drawn(ctx) {
		return ctx, func(error) {}
	}
	ctx, end := s.t.Start(ctx, "store "+op)
	s.t.Text(ctx, "lector.object", name)
	return ctx, func(err error) {
		switch {
		case errors.Is(err, cache.ErrExists):
			s.t.Text(ctx, "lector.answer", "exists")
			err = nil
		case errors.Is(err, cache.ErrNotFound):
			s.t.Text(ctx, "lector.answer", "not found")
			err = nil
		}
		end(err)
	}
}

// Put is drawn with its size.
func (s tracedStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	return s.put(ctx, name, size, func(ctx context.Context) error { return s.Store.Put(ctx, name, body, size, how) })
}

func (s tracedStore) put(ctx context.Context, name string, size int64, do func(context.Context) error) error {
	ctx, end := s.start(ctx, "put", name)
	s.t.Int(ctx, "lector.bytes", size)
	err := do(ctx)
	end(err)
	return err
}

// Get is drawn until its reader is closed.
func (s tracedStore) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	ctx, end := s.start(ctx, "get", name)
	r, err := s.Store.Get(ctx, name, off, n)
	if err != nil {
		end(err)
		return nil, err
	}
	return &tracedReader{ReadCloser: r, end: func(bytes int64, err error) {
		s.t.Int(ctx, "lector.bytes", bytes)
		end(err)
	}}, nil
}

type tracedReader struct {
	io.ReadCloser
	bytes int64
	err   error
	end   func(int64, error) // nil once called
}

// Read counts.
func (r *tracedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.bytes += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// Close ends the span.
func (r *tracedReader) Close() error {
	err := r.ReadCloser.Close()
	if r.end != nil {
		r.end(r.bytes, errors.Join(r.err, err))
		r.end = nil
	}
	return err
}

// Stat is drawn.
func (s tracedStore) Stat(ctx context.Context, name string) (cache.Object, error) {
	ctx, end := s.start(ctx, "stat", name)
	o, err := s.Store.Stat(ctx, name)
	end(err)
	return o, err
}

// List is drawn until its last answer.
func (s tracedStore) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return func(yield func(cache.Object, error) bool) {
		ctx, end := s.start(ctx, "list", prefix)
		var met error
		defer func() { end(met) }()
		for o, err := range s.Store.List(ctx, prefix) {
			if err != nil {
				met = err
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// Delete is drawn.
func (s tracedStore) Delete(ctx context.Context, name string) error {
	ctx, end := s.start(ctx, "delete", name)
	err := s.Store.Delete(ctx, name)
	end(err)
	return err
}
