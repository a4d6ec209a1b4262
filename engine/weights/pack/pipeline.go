package pack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"lector/engine/weights"
)

// task is a piece on its way: built by any goroutine, committed in order.
type task struct {
	unit   *unit
	piece  *piece // nil for a unit of several pieces that is there already
	last   bool   // of its unit
	buffer []byte

	built  chan struct{} // closed when the rest is set
	reused bool          // the bytes are in the file
	sums   []string      // digests of a unit of one piece, by span
	crc    uint32
	err    error
}

// pipeline hands pieces from the plan to builders, and from them to one committer.
type pipeline struct {
	*run
	ordered chan *task  // all tasks in order, for the committer
	work    chan *task  // the same for builders
	buffers chan []byte // free ones; their number bounds the tasks that are under way
	memory  atomic.Int64
}

// fill writes all units that are not there: goroutines build pieces, one commits them in order.
func (r *run) fill(ctx context.Context) error {
	builders := min(runtime.GOMAXPROCS(0), 16)
	p := &pipeline{run: r, ordered: make(chan *task, builders+2), work: make(chan *task), buffers: make(chan []byte, builders+2)}
	for range cap(p.buffers) {
		p.buffers <- nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(p.ordered)
		defer close(p.work)
		return p.schedule(ctx)
	})
	for range builders {
		group.Go(func() error {
			for t := range p.work {
				t.err = p.build(t)
				close(t.built)
			}
			return nil
		})
	}
	group.Go(func() error { return p.commitAll(ctx) })
	err := group.Wait()
	r.report.Buffers = p.memory.Load()
	return err
}

// schedule hands out the pieces of the store in order, each with a buffer.
func (p *pipeline) schedule(ctx context.Context) error {
	for _, u := range p.plan.units {
		if len(u.pieces) != 1 && p.whole(u) {
			t := &task{unit: u, last: true, reused: true, sums: p.journal.done[u.name], built: make(chan struct{})}
			close(t.built)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case p.ordered <- t:
			}
			continue
		}
		for i := range u.pieces {
			t := &task{unit: u, piece: &u.pieces[i], last: i == len(u.pieces)-1, built: make(chan struct{})}
			if err := p.send(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// send gives a task to a builder and to the committer, in the order that lets neither wait for ever.
func (p *pipeline) send(ctx context.Context, t *task) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case t.buffer = <-p.buffers:
	}
	if cap(t.buffer) < t.piece.bytes {
		p.memory.Add(int64(t.piece.bytes - cap(t.buffer)))
		t.buffer = make([]byte, t.piece.bytes)
	}
	t.buffer = t.buffer[:t.piece.bytes]
	select {
	case <-ctx.Done():
		return ctx.Err()
	case p.work <- t: // a builder has it, so it will be built
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case p.ordered <- t:
	}
	return nil
}

// whole says whether a unit of several pieces is in the file as the journal says.
func (p *pipeline) whole(u *unit) bool {
	sums := p.journal.done[u.name]
	if len(sums) != len(u.spans) {
		return false
	}
	buffer := make([]byte, 1<<16)
	for i, s := range u.spans {
		h := sha256.New()
		n, err := io.CopyBuffer(struct{ io.Writer }{h}, io.NewSectionReader(p.files[u.file], s.offset, s.bytes), buffer)
		if err != nil || n != s.bytes || hex.EncodeToString(h.Sum(nil)) != sums[i] {
			return false
		}
	}
	return true
}

// build fills a task's buffer: from the file where an earlier run wrote the unit, else from the source.
func (p *pipeline) build(t *task) error {
	if len(t.unit.pieces) == 1 && p.reread(t) {
		t.reused = true
	} else if err := t.piece.build(t.buffer); err != nil {
		return err
	}
	if len(t.unit.pieces) == 1 {
		t.sums = t.fragmentSums()
	}
	if t.unit.checked {
		t.crc = weights.RecordCRC(t.buffer)
	}
	return nil
}

// reread reads a unit of one piece back and says whether it is what the journal names.
func (p *pipeline) reread(t *task) bool {
	sums := p.journal.done[t.unit.name]
	if len(sums) == 0 {
		return false
	}
	rest := t.buffer
	for _, f := range t.piece.fragments {
		if n, _ := p.files[t.unit.file].ReadAt(rest[:f.bytes], f.offset); n != f.bytes {
			return false
		}
		rest = rest[f.bytes:]
	}
	return slices.Equal(sums, t.fragmentSums())
}

// fragmentSums are the digests of the fragments, which are the spans of a unit of one piece.
func (t *task) fragmentSums() []string {
	sums, rest := make([]string, 0, len(t.piece.fragments)), t.buffer
	for _, f := range t.piece.fragments {
		sum := sha256.Sum256(rest[:f.bytes])
		sums, rest = append(sums, hex.EncodeToString(sum[:])), rest[f.bytes:]
	}
	return sums
}

// committer takes tasks in order. It alone writes, and alone knows how far the store is.
type committer struct {
	*pipeline
	hashes []hash.Hash // of the spans of a unit of several pieces
	done   int64
}

func (p *pipeline) commitAll(ctx context.Context) error {
	c := &committer{pipeline: p}
	for t := range p.ordered {
		<-t.built
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.commit(t); err != nil {
			return fmt.Errorf("%s: %w", t.unit.name, err)
		}
		if t.piece != nil {
			p.buffers <- t.buffer
		}
	}
	return nil
}

// commit writes a piece, and after the last one of a unit notes that it is finished.
func (c *committer) commit(t *task) error {
	if t.err != nil {
		return t.err
	}
	if !t.reused {
		if err := c.write(t); err != nil {
			return err
		}
	}
	if len(t.unit.pieces) != 1 && !t.reused {
		c.digest(t)
	}
	if t.unit.observe != nil {
		t.unit.observe(t.buffer)
	}
	bytes := t.unit.bytes
	if t.piece != nil {
		bytes = int64(t.piece.bytes)
	}
	c.count(bytes, t.reused)
	if !t.last {
		return nil
	}
	t.unit.record(t.sums, t.crc)
	if t.reused {
		return nil
	}
	return c.journal.write(journalLine{Unit: t.unit.name, SHA256: t.sums})
}

func (c *committer) write(t *task) error {
	rest := t.buffer
	for _, f := range t.piece.fragments {
		if _, err := c.files[t.unit.file].WriteAt(rest[:f.bytes], f.offset); err != nil {
			return fmt.Errorf("write %s: %w", dataFiles()[t.unit.file], err)
		}
		rest = rest[f.bytes:]
	}
	return nil
}

// digest goes on with the digests of a unit of several pieces.
func (c *committer) digest(t *task) {
	if c.hashes == nil {
		for range t.unit.spans {
			c.hashes = append(c.hashes, sha256.New())
		}
	}
	rest := t.buffer
	for _, f := range t.piece.fragments {
		c.hashes[f.span].Write(rest[:f.bytes])
		rest = rest[f.bytes:]
	}
	if t.last {
		for _, h := range c.hashes {
			t.sums = append(t.sums, hex.EncodeToString(h.Sum(nil)))
		}
		c.hashes = nil
	}
}

func (c *committer) count(bytes int64, reused bool) {
	c.done += bytes
	if reused {
		c.report.Reused += bytes
	} else {
		c.report.Written += bytes
	}
	c.Progress(c.done, c.plan.total)
}
