package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// PublishHandle stores body if the job has no handle, and returns the body that stands. The server decides who was
// first, so a worker that lost its delivery can publish nothing over it.
func (q *Queue) PublishHandle(ctx context.Context, job string, body []byte) ([]byte, error) {
	if !validToken(job) {
		return nil, fmt.Errorf("publish handle: the job id %q is not made of letters, digits, '-' and '_'", job)
	}
	if err := q.fits(body, "handle of job "+job); err != nil {
		return nil, err
	}
	call, cancel := q.call(ctx)
	defer cancel()
	_, err := q.js.Publish(call, handleSubject(job), body, jetstream.WithExpectLastSequencePerSubject(0))
	switch {
	case err == nil:
		return body, nil
	case isConflict(err):
		return q.Handle(ctx, job)
	}
	return nil, q.fail(ctx, err, "publish handle of job %s", job)
}

// Handle returns the job's handle; queue.ErrUnknown.
func (q *Queue) Handle(ctx context.Context, job string) ([]byte, error) {
	if !validToken(job) {
		return nil, fmt.Errorf("handle of job %q: %w", job, queue.ErrUnknown)
	}
	call, cancel := q.call(ctx)
	defer cancel()
	msg, err := q.handles.GetLastMsgForSubject(call, handleSubject(job))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("handle of job %q: %w", job, queue.ErrUnknown)
	}
	if err != nil {
		return nil, q.fail(ctx, err, "read handle of job %s", job)
	}
	return msg.Data, nil
}
