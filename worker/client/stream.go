package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"lector/queue"
	"lector/worker"
)

// ErrRetold says that another attempt at a job tells another text than the one that was given: workers whose classes
// agree within bounds only may differ in a choice that was close.
var ErrRetold = errors.New("another attempt tells another text")

// Piece is a part of a text.
type Piece struct {
	Branch  int     `json:"branch"`           // which of the order's texts
	First   int     `json:"first"`            // index of IDs[0] in the text's tokens
	IDs     []int32 `json:"ids"`              // may be empty: text that was held back
	Offset  int     `json:"offset"`           // bytes of the text before Text
	Text    string  `json:"text"`             // may be empty: half a character
	Finish  string  `json:"finish,omitempty"` // why the text ends here: worker.FinishStop and the others; "" while it goes on
	Attempt int     `json:"attempt"`          // the one that made it
}

// Place is how far each text of a job has been given, by branch. It can be kept as JSON, to go on from there in another
// process.
type Place map[int]Given

// Given is how far one text has been given.
type Given struct {
	Tokens int  `json:"tokens"`
	Bytes  int  `json:"bytes"`
	Ended  bool `json:"ended,omitempty"`
}

// Add moves the place past a piece.
func (p Place) Add(x Piece) {
	p[x.Branch] = Given{Tokens: x.First + len(x.IDs), Bytes: x.Offset + len(x.Text), Ended: x.Finish != ""}
}

// Stream yields the texts of a resume piece by piece, from a place on (nil: from their beginning), until the job has
// ended. Errors end it: *Failed, ErrCancelled, ErrExpired, ErrRetold, queue.ErrUnknown.
func (c *Client) Stream(ctx context.Context, job string, from Place) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s := &stream{place: Place{}, begun: from, said: map[int][]int32{}, yield: yield}
		for branch, given := range from {
			s.place[branch] = given
		}
		status, err := c.Follow(ctx, job, func(e queue.Event) {
			if s.stopped || s.failed != nil || e.Type != queue.EventTokens {
				return
			}
			if s.hear(e); s.stopped || s.failed != nil {
				cancel()
			}
		})
		switch {
		case s.stopped:
			return
		case s.failed != nil:
			err = fmt.Errorf("job %s: %w", job, s.failed)
		case err == nil:
			var r worker.Result
			if r, err = c.result(ctx, status); err == nil {
				s.complete(r)
			}
		}
		if err != nil && !s.stopped {
			yield(Piece{}, err)
		}
	}
}

// stream gives each token once.
type stream struct {
	place   Place
	begun   Place           // what the caller has of earlier streams, which cannot be compared
	said    map[int][]int32 // tokens given since then
	yield   func(Piece, error) bool
	stopped bool
	failed  error
}

// hear gives what an event has beyond the place. One that begins beyond it comes after others that are lost: the
// result will have their part, too.
func (s *stream) hear(e queue.Event) {
	given := s.place[e.Branch]
	if e.First > given.Tokens || e.Offset > given.Bytes {
		return
	}
	if s.failed = s.compare(e); s.failed != nil {
		return
	}
	known, told := min(len(e.IDs), given.Tokens-e.First), min(len(e.Text), given.Bytes-e.Offset)
	s.give(Piece{
		Branch: e.Branch, First: e.First + known, IDs: e.IDs[known:], Offset: e.Offset + told, Text: e.Text[told:],
		Finish: e.Finish, Attempt: e.Attempt,
	})
}

// compare holds an event against the tokens that were given.
func (s *stream) compare(e queue.Event) error {
	said, from := s.said[e.Branch], s.begun[e.Branch].Tokens
	for i, id := range e.IDs {
		if at := e.First + i - from; at >= 0 && at < len(said) && said[at] != id {
			return fmt.Errorf("%w: token %d of branch %d was %d, attempt %d says %d", ErrRetold, e.First+i, e.Branch, said[at], e.Attempt, id)
		}
	}
	return nil
}

// give yields a piece unless it holds nothing new.
func (s *stream) give(p Piece) {
	given := s.place[p.Branch]
	if len(p.IDs) == 0 && p.Text == "" && (p.Finish == "" || given.Ended) {
		return
	}
	if p.First+len(p.IDs) < given.Tokens || p.Offset+len(p.Text) < given.Bytes {
		return // of an attempt that has not come as far
	}
	s.said[p.Branch] = append(s.said[p.Branch], p.IDs...)
	s.place.Add(p)
	s.stopped = !s.yield(p, nil)
}

// complete gives what the events have left out.
func (s *stream) complete(r worker.Result) {
	texts := r.Branches
	if len(texts) == 0 {
		texts = []worker.Branch{{Text: r.Text, IDs: r.IDs, FinishReason: r.FinishReason}}
	}
	for _, b := range texts {
		if s.stopped || s.failed != nil {
			return
		}
		e := queue.Event{Branch: b.Index, IDs: b.IDs, Text: b.Text, Finish: b.FinishReason, Attempt: r.Attempt}
		if given := s.place[b.Index]; given.Tokens > len(b.IDs) || given.Bytes > len(b.Text) {
			s.failed = fmt.Errorf("%w: branch %d has %d tokens, and %d were given", ErrRetold, b.Index, len(b.IDs), given.Tokens)
		} else {
			s.hear(e)
		}
	}
	if s.failed != nil && !s.stopped {
		s.stopped = true
		s.yield(Piece{}, s.failed)
	}
}

// Texts joins the pieces of a stream to one text a branch, until it ends.
func Texts(pieces iter.Seq2[Piece, error]) ([]string, error) {
	var texts []string
	for p, err := range pieces {
		if err != nil {
			return texts, err
		}
		texts = append(texts, slices.Repeat([]string{""}, max(0, p.Branch+1-len(texts)))...)
		texts[p.Branch] += p.Text
	}
	return texts, nil
}
