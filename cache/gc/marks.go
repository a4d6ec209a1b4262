package gc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"lector/cache"
)

// The marks of earlier runs lie in one object: a first line, then one line an unreachable object with the time of its
// mark in nanoseconds and its name, then the digest of all lines before, since a time that was damaged could end a grace
// early. It is an aid: losing it costs another grace, and no more.
const (
	marksHead  = "lector gc 2\n"
	marksSum   = "sum "
	maxMarks   = 300_000 // what is beyond waits for a later run
	marksBytes = cache.MaxBlob
)

// readMarks reads the marks of earlier runs. Damaged ones are as good as none.
func (r *run) readMarks(ctx context.Context) (map[string]time.Time, error) {
	if r.opt.Alone {
		return nil, nil
	}
	body, err := r.space.Store.Get(ctx, r.folder()+"marks", 0, -1)
	if errors.Is(err, cache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(body, marksBytes+1))
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("read marks: %w", err)
	}
	marks, err := parseMarks(b)
	if err != nil {
		r.note("the marks of earlier runs are damaged (%v): the grace begins anew", err)
		return nil, nil
	}
	return marks, nil
}

func parseMarks(b []byte) (map[string]time.Time, error) {
	at := bytes.LastIndex(b, []byte(marksSum))
	if at < 0 || len(b) > marksBytes || string(b[at:]) != marksSum+cache.Sum(b[:at]).String()+"\n" {
		return nil, errors.New("no list of marks with its digest")
	}
	text, ok := strings.CutPrefix(string(b[:at]), marksHead)
	if !ok {
		return nil, errors.New("no list of marks")
	}
	marks := map[string]time.Time{}
	for len(text) > 0 {
		line, rest, whole := strings.Cut(text, "\n")
		at, name, ok := strings.Cut(line, " ")
		n, err := strconv.ParseInt(at, 10, 64)
		if !whole || !ok || err != nil || cache.CheckName(name) != nil || len(marks) == maxMarks {
			return nil, fmt.Errorf("line %.200q is no mark", line)
		}
		marks[name] = time.Unix(0, n).UTC()
		text = rest
	}
	return marks, nil
}

// writeMarks stores what this run has marked.
func (r *run) writeMarks(ctx context.Context) error {
	if r.opt.Alone {
		return nil
	}
	b := formatMarks(r.marks)
	if err := r.space.Store.Put(ctx, r.folder()+"marks", bytes.NewReader(b), int64(len(b)), cache.Replace); err != nil {
		return fmt.Errorf("store marks: %w", err)
	}
	return nil
}

func formatMarks(marks map[string]time.Time) []byte {
	b := []byte(marksHead)
	for i, name := range slices.Sorted(maps.Keys(marks)) {
		if i == maxMarks || len(b)+len(name)+24+len(marksSum)+2*len(cache.Digest{})+1 > marksBytes {
			break
		}
		b = strconv.AppendInt(b, marks[name].UnixNano(), 10)
		b = append(append(append(b, ' '), name...), '\n')
	}
	return append(b, marksSum+cache.Sum(b).String()+"\n"...)
}
