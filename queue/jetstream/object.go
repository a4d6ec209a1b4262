package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// Object opens an object of a NATS object store on the queue's server; queue.ErrUnknown where there is none. The reader
// checks its digest at the end, and fails when ctx ends.
func (q *Queue) Object(ctx context.Context, bucket, name string) (io.ReadCloser, error) {
	call, cancel := q.call(ctx)
	defer cancel()
	store, err := q.js.ObjectStore(call, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrInvalidStoreName) {
		return nil, fmt.Errorf("open object store %s: there is no such bucket: %w", bucket, queue.ErrUnknown)
	}
	if err != nil {
		return nil, q.fail(ctx, err, "open object store %s", bucket)
	}
	o, err := store.Get(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) || errors.Is(err, jetstream.ErrNameRequired) {
		return nil, fmt.Errorf("open object %s in %s: there is no such object: %w", name, bucket, queue.ErrUnknown)
	}
	if err != nil {
		return nil, q.fail(ctx, err, "open object %s in %s", name, bucket)
	}
	return o, nil
}
