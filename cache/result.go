package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// maxResultBytes bounds a result read into memory.
const maxResultBytes = 64 << 20

// PutResult stores what became of a job, unless that is stored already, and returns the result that stands: of two
// attempts the first has the word. A cut or damaged one is written again, since whoever asks can make it again.
func (s *Space) PutResult(ctx context.Context, job string, body []byte) (standing []byte, err error) {
	if err := s.check(job); err != nil {
		return nil, err
	}
	name := s.ResultName(job)
	if len(body) > maxResultBytes {
		return nil, fmt.Errorf("store %s: %d bytes, more than %d: ask for less text", name, len(body), maxResultBytes)
	}
	b := append([]byte(resultSum(job, body).String()+"\n"), body...)
	stored, err := s.putOnce(ctx, small{name: name, bytes: b, limit: maxResultBytes + resultHead})
	if err != nil {
		return nil, err
	}
	standing, err = s.openResult(job, stored)
	if !errors.Is(err, ErrCorrupt) {
		return standing, err
	}
	if err := s.Store.Put(ctx, name, bytes.NewReader(b), int64(len(b)), Replace); err != nil {
		return nil, fmt.Errorf("store %s again in place of a damaged one: %w", name, err)
	}
	return body, nil
}

// Result reads what became of a job. Errors: ErrNotFound, ErrCorrupt.
func (s *Space) Result(ctx context.Context, job string) ([]byte, error) {
	if err := s.check(job); err != nil {
		return nil, err
	}
	b, err := s.read(ctx, s.ResultName(job), maxResultBytes+resultHead)
	if err != nil {
		return nil, err
	}
	return s.openResult(job, b)
}

// ResultName is the object that holds a job's result.
func (s *Space) ResultName(job string) string { return s.TenantName() + "/results/" + job }

// resultHead is the size of the line before a result: a digest of the job and of what follows, since the name does not
// say it, and one job's result must not pass for another's.
const resultHead = int64(2*len(Digest{}) + 1)

func resultSum(job string, body []byte) Digest { return Sum(append([]byte(job+"\n"), body...)) }

func (s *Space) openResult(job string, b []byte) ([]byte, error) {
	name := s.ResultName(job)
	if int64(len(b)) < resultHead {
		return nil, refuse(ErrCorrupt, "object %s is damaged: %d bytes are too few", name, len(b))
	}
	if got := resultSum(job, b[resultHead:]); got.String()+"\n" != string(b[:resultHead]) {
		return nil, refuse(ErrCorrupt, "object %s is damaged: its result has the digest %s, not the one before it", name, got)
	}
	return b[resultHead:], nil
}
