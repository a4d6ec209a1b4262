package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"lector/cache"
)

// stored finds the result of an earlier attempt that got that far: its tokens have been told, and its state is kept.
// A damaged one counts as none.
func (r *resume) stored(ctx context.Context) (bool, error) {
	body, err := r.Space.Result(ctx, r.job.ID)
	if errors.Is(err, cache.ErrNotFound) || errors.Is(err, cache.ErrCorrupt) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the result of job %s: %w", r.job.ID, err)
	}
	return true, r.adopt(body)
}

// store keeps the result beside the states, before anybody is told that the job is done. Of two attempts the first has
// the word.
func (r *resume) store(ctx context.Context) error {
	body, err := json.Marshal(r.result)
	if err != nil {
		return fmt.Errorf("encode result of job %s: %w", r.job.ID, err)
	}
	if err := r.own(ctx); err != nil {
		return err
	}
	standing, err := r.Space.PutResult(ctx, r.job.ID, body)
	if err != nil {
		return fmt.Errorf("store result of job %s: %w", r.job.ID, err)
	}
	return r.adopt(standing)
}

// adopt makes a stored result the attempt's, as it fits a message.
func (r *resume) adopt(body []byte) error {
	r.result = Result{}
	if err := json.Unmarshal(body, &r.result); err != nil {
		return fmt.Errorf("read the stored result of job %s: %w", r.job.ID, err)
	}
	if len(body) <= r.config.ResultMessage {
		return nil
	}
	r.result.Stored = true
	r.result.Text, r.result.IDs = "", nil
	for i := range r.result.Branches {
		r.result.Branches[i].Text, r.result.Branches[i].IDs = "", nil
	}
	return nil
}
