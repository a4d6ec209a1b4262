package monitor

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lector/cache"
)

// Operations of a store, as labels.
const (
	opPut    = "put"
	opGet    = "get"
	opStat   = "stat"
	opList   = "list"
	opDelete = "delete"
)

// meteredStore counts what goes through a store.
type meteredStore struct {
	cache.Store
	m *Metrics
}

// Store is s with every request counted. It can stage where s can.
func (m *Metrics) Store(s cache.Store) cache.Store {
	if st, ok := s.(cache.Stager); ok {
		return meteredStager{meteredStore{s, m}, st}
	}
	return meteredStore{s, m}
}

// Probe asks the store beneath whether it does what a writer needs, where it can say so.
func (s meteredStore) Probe(ctx context.Context) error {
	if p, ok := s.Store.(interface{ Probe(context.Context) error }); ok {
		return p.Probe(ctx)
	}
	return nil
}

// count records one request that began then.
func (s meteredStore) count(op string, began time.Time, err error) {
	result := "ok"
	switch {
	case errors.Is(err, cache.ErrExists):
		result = "exists"
	case errors.Is(err, cache.ErrNotFound):
		result = "not_found"
	case errors.Is(err, context.Canceled):
		result = "cancelled"
	case err != nil:
		result = "error"
	}
	s.m.store.requests.WithLabelValues(op, result).Inc()
	s.m.store.seconds.WithLabelValues(op).Observe(s.m.now().Sub(began).Seconds())
}

// Put counts the bytes of an object that was stored.
func (s meteredStore) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	return s.put(size, func() error { return s.Store.Put(ctx, name, body, size, how) })
}

func (s meteredStore) put(size int64, do func() error) error {
	began := s.m.now()
	err := do()
	s.counted(size, began, err)
	return err
}

func (s meteredStore) counted(size int64, began time.Time, err error) {
	s.count(opPut, began, err)
	if err == nil {
		s.m.store.bytes.WithLabelValues(opPut).Add(float64(size))
	}
}

// Get counts the bytes that are read, and ends its request when the reader is closed.
func (s meteredStore) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	began := s.m.now()
	r, err := s.Store.Get(ctx, name, off, n)
	if err != nil {
		s.count(opGet, began, err)
		return nil, err
	}
	return &meteredReader{ReadCloser: r, bytes: s.m.store.bytes.WithLabelValues(opGet), done: func(err error) { s.count(opGet, began, err) }}, nil
}

type meteredReader struct {
	io.ReadCloser
	bytes prometheus.Counter
	done  func(error) // nil once called
	err   error       // that a read met
}

// Read counts.
func (r *meteredReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.bytes.Add(float64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// Close ends the request.
func (r *meteredReader) Close() error {
	err := r.ReadCloser.Close()
	if r.done != nil {
		r.done(errors.Join(r.err, err))
		r.done = nil
	}
	return err
}

// Stat counts a question.
func (s meteredStore) Stat(ctx context.Context, name string) (cache.Object, error) {
	began := s.m.now()
	o, err := s.Store.Stat(ctx, name)
	s.count(opStat, began, err)
	return o, err
}

// List counts one request, however many answers it has.
func (s meteredStore) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return func(yield func(cache.Object, error) bool) {
		began := s.m.now()
		var met error
		for o, err := range s.Store.List(ctx, prefix) {
			if err != nil {
				met = err
			}
			if !yield(o, err) {
				break
			}
		}
		s.count(opList, began, met)
	}
}

// Delete counts a removal.
func (s meteredStore) Delete(ctx context.Context, name string) error {
	began := s.m.now()
	err := s.Store.Delete(ctx, name)
	s.count(opDelete, began, err)
	return err
}
