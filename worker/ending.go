package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"lector/cache"
	"lector/engine"
	"lector/queue"
)

// endError says that the job is to end before its work is done, and as what.
type endError struct {
	state  queue.State // Cancelled or Expired
	reason string
}

func (e *endError) Error() string {
	if e.reason == "" {
		return "job is " + string(e.state)
	}
	return fmt.Sprintf("job is %s: %s", e.state, e.reason)
}

// asked is the end that somebody wants of the job now, or nil. Work asks at boundaries: what is finished stays.
func (a *attempt) asked() error {
	if d := a.job.Deadline; !d.IsZero() && !a.now().Before(d) {
		return &endError{queue.Expired, "its deadline was " + d.UTC().Format("2006-01-02 15:04:05 MST")}
	}
	if a.alive.cancelled() {
		return &endError{state: queue.Cancelled}
	}
	return nil
}

// finish makes an early end known, with what was kept of the work.
func (a *attempt) finish(ctx context.Context, end *endError, kept any) error {
	var body []byte
	if kept != nil {
		var err error
		if body, err = json.Marshal(kept); err != nil {
			return fmt.Errorf("encode result of job %s: %w", a.job.ID, err)
		}
	}
	if err := a.setStatus(ctx, queue.Status{State: end.state, Result: body}); err != nil {
		return err
	}
	a.early = end.state
	reason := end.reason
	if s, err := a.Queue.Status(ctx, a.job.ID); err == nil && s.Cancel != nil && reason == "" {
		reason = s.Cancel.Reason
	}
	return a.tell(ctx, queue.Event{Type: queue.EventEnded, State: end.state, Reason: reason, Result: body})
}

// partial keeps the state at the last boundary of a document that is not read to its end, and makes a handle for it. It
// is not published as the job's: that one is for the whole document.
func (in *ingest) partial(ctx context.Context) error {
	if err := in.landed(ctx); err != nil {
		return err
	}
	in.receipt.Partial = in.done()
	in.sender()
	if i := len(in.nodes) - 1; i >= 0 {
		if err := in.keepLast(ctx, i); err != nil {
			return err
		}
		m, h, err := in.makeHandle(ctx, kept{nodes: in.nodes}, in.order.TTL)
		if err != nil {
			return err
		}
		in.sign(h, m)
	}
	in.receipt.Seconds.close(in.now().Sub(in.started))
	return in.Space.DropRolling(ctx, in.job.ID, nil)
}

// keepLast turns the recurrent state at the end of node i, which the sequence holds, from a rolling one into a kept one.
func (in *ingest) keepLast(ctx context.Context, i int) error {
	if in.seq == nil || int(in.seq.Pos()) != in.nodes[i].To {
		return nil // then it was found in the store, kept
	}
	step, err := in.export(in.seq, in.step(i, engine.Probe{}))
	if err != nil {
		return err
	}
	step.Probe, step.Keep = in.nodes[i].Probe, true
	node, written, err := in.Space.PutStep(ctx, step)
	if err != nil {
		return fmt.Errorf("keep the state at %d: %w", step.To, err)
	}
	in.nodes[i] = node
	in.receipt.WrittenBytes += written.Bytes
	return nil
}

// markEarly has the state kept at the first boundary at or after each of the places where the order wants a handle, and
// returns the cells that end there, but for the last one: the document's end has its handle anyway.
func markEarly(cells []Cell, at []int) []int {
	var out []int
	i := 0
	for _, n := range at {
		for i < len(cells)-1 && cells[i].To < n {
			i++
		}
		if i >= len(cells)-1 {
			break
		}
		if len(out) == 0 || out[len(out)-1] != i {
			cells[i].Keep = true
			out = append(out, i)
		}
	}
	return out
}

// handlesOnTheWay makes the handles that the order wants for the part that is stored by now.
func (in *ingest) handlesOnTheWay(ctx context.Context) error {
	none := in.order.KeepState == queue.KeepNone
	for len(in.wanted) > 0 && (none || in.cells[in.wanted[0]].To <= in.good()) {
		i := in.wanted[0]
		part := kept{tokens: in.tokens[:in.cells[i].To]}
		if !none {
			part = kept{nodes: in.nodes[:i+1]}
		}
		in.wanted = in.wanted[1:]
		e := queue.Event{Type: queue.EventHandle, Tokens: in.cells[i].To, Total: len(in.tokens)}
		_, h, err := in.makeHandle(ctx, part, in.order.TTL)
		switch {
		case errors.Is(err, cache.ErrNotFound):
			e.Reason = "another job has read this part, and kept no state there"
		case err != nil:
			return err
		default:
			d := cache.Sum(h.Encode())
			early := EarlyHandle{Tokens: h.Tokens, Handle: cache.HandleName(d), HandleDigest: d.String()}
			in.receipt.Early = append(in.receipt.Early, early)
			if e.Result, err = json.Marshal(early); err != nil {
				return fmt.Errorf("encode handle at %d: %w", h.Tokens, err)
			}
		}
		if err := in.own(ctx); err != nil {
			return err
		}
		if err := in.tell(ctx, e); err != nil {
			return err
		}
	}
	return nil
}
