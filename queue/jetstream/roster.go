package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"lector/queue"
)

// rosterSubject is where workers are asked what they do. It is of no stream: a question and its answers are forgotten.
const rosterSubject = "lector.workers.ask"

// rosterVersion is the version of what workers answer. 1: first.
const rosterVersion = 1

var _ queue.Roster = (*Queue)(nil)

// Answer has this connection answer what Workers asks.
func (q *Queue) Answer(report func() queue.WorkerStatus) (stop func(), err error) {
	sub, err := q.nc.Subscribe(rosterSubject, func(msg *nats.Msg) {
		s := report()
		s.Version = rosterVersion
		b, err := json.Marshal(s)
		if err == nil {
			err = msg.Respond(b)
		}
		if err != nil {
			q.cfg.Log(LevelWarn, "say what this worker does: "+err.Error())
		}
	})
	if err != nil {
		return nil, q.fail(context.Background(), err, "answer what workers do")
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails only where it is gone already
}

// Workers asks all workers at once. The server says when there are none.
func (q *Queue) Workers(ctx context.Context, wait time.Duration) ([]queue.WorkerStatus, error) {
	const doing = "ask workers what they do"
	inbox := q.nc.NewInbox()
	answers, err := q.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, q.fail(ctx, err, doing)
	}
	defer func() { _ = answers.Unsubscribe() }() // fails only where it is gone already
	if err := q.nc.PublishRequest(rosterSubject, inbox, nil); err != nil {
		return nil, q.fail(ctx, err, doing)
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var out []queue.WorkerStatus
	for {
		msg, err := answers.NextMsgWithContext(within)
		if errors.Is(err, nats.ErrNoResponders) {
			return nil, nil
		}
		if within.Err() != nil && ctx.Err() == nil {
			break // that was all
		}
		if err != nil {
			return nil, q.fail(ctx, err, doing)
		}
		if s, err := decodeStatus(msg.Data); err == nil {
			out = append(out, s)
		} else {
			q.cfg.Log(LevelWarn, err.Error())
		}
	}
	slices.SortFunc(out, func(a, b queue.WorkerStatus) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Process, b.Process))
	})
	return out, nil
}

// decodeStatus reads an answer. One of a later version is left out, not guessed at.
func decodeStatus(b []byte) (queue.WorkerStatus, error) {
	var s queue.WorkerStatus
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read what a worker says: %w", err)
	}
	if s.Version != rosterVersion {
		return s, fmt.Errorf("read what a worker says: version %d, and this lector reads %d", s.Version, rosterVersion)
	}
	return s, nil
}
