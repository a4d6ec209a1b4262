package cache

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"slices"
)

// bodyPiece is how much of a body is handed on at a time: enough to make the calls cheap, little enough that a
// cancelled context is seen soon.
const bodyPiece = 1 << 20

// body reads segments back to back without copying them first. The segments must not change while it is read.
type body struct {
	segs []segment
	size int64
	at   int   // segment of the next byte
	off  int64 // in that segment

	digest *Digest // nil: not known
}

// Summed is a body whose SHA-256 is known, so that a store that has to say it need not read the body for it. It is what the
// bytes had when they were taken: a store that checks what it is sent finds out if they have changed since.
type Summed interface {
	io.ReadSeeker
	// SHA256 is the digest of the whole body, if it is known.
	SHA256() (Digest, bool)
}

var (
	_ Summed      = (*body)(nil)
	_ io.WriterTo = (*body)(nil)
)

func newBody(segs []segment) *body {
	b := &body{segs: segs}
	for _, s := range segs {
		b.size += int64(len(s.data))
	}
	return b
}

// hashPieces adds data to a hash, and lets others run in between.
func hashPieces(h hash.Hash, data []byte) {
	for piece := range slices.Chunk(data, sumPiece) {
		h.Write(piece) // a hash takes everything
		runtime.Gosched()
	}
}

// SHA256 implements Summed.
func (b *body) SHA256() (d Digest, known bool) {
	if b.digest == nil {
		return d, false
	}
	return *b.digest, true
}

// rest is what is left of the segment at hand, nil at the end.
func (b *body) rest() []byte {
	for b.at < len(b.segs) {
		if data := b.segs[b.at].data[b.off:]; len(data) > 0 {
			return data
		}
		b.at, b.off = b.at+1, 0
	}
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	total := 0
	for total < len(p) {
		data := b.rest()
		if data == nil {
			break
		}
		n := copy(p[total:], data)
		b.off += int64(n)
		total += n
	}
	if total == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return total, nil
}

// WriteTo implements io.WriterTo: the segments go to w as they lie in memory.
func (b *body) WriteTo(w io.Writer) (total int64, err error) {
	for data := b.rest(); data != nil; data = b.rest() {
		n, err := w.Write(data[:min(len(data), bodyPiece)])
		b.off += int64(n)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// Seek implements io.Seeker.
func (b *body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += b.position()
	case io.SeekEnd:
		offset += b.size
	default:
		return 0, fmt.Errorf("seek: whence %d is not known", whence)
	}
	if offset < 0 || offset > b.size {
		return 0, errors.New("seek: beyond the body")
	}
	b.at, b.off = 0, offset
	for b.at < len(b.segs) && b.off > int64(len(b.segs[b.at].data)) {
		b.off -= int64(len(b.segs[b.at].data))
		b.at++
	}
	return offset, nil
}

func (b *body) position() int64 {
	at := b.off
	for _, s := range b.segs[:b.at] {
		at += int64(len(s.data))
	}
	return at
}

// CopyExactly writes size bytes of body, from its start, to w, and stops when the context is over. A body that is
// shorter is io.ErrUnexpectedEOF; of a longer one no more than its size is written.
func CopyExactly(ctx context.Context, w io.Writer, body io.ReadSeeker, size int64) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n, err := copyPieces(&exactly{ctx, w, size}, body, size)
	switch {
	case errors.Is(err, errLong):
		return fmt.Errorf("body has more than its %d bytes", size)
	case err != nil:
		return err
	case n < size:
		return fmt.Errorf("body has %d bytes, not %d: %w", n, size, io.ErrUnexpectedEOF)
	}
	return ctx.Err()
}

// copyPieces copies from where the body lies, when it can write itself, and else by large pieces. A file cannot be
// left to itself: it would look for ways to hand its bytes over that an exact writer hides. A small object gets a small
// buffer: clearing a large one would take longer than writing it.
func copyPieces(w io.Writer, from io.Reader, size int64) (int64, error) {
	if b, ok := from.(*body); ok {
		return b.WriteTo(w)
	}
	return io.CopyBuffer(w, struct{ io.Reader }{from}, make([]byte, min(bodyPiece, max(size, 0)+1)))
}

// errLong stops a body that goes on after its size.
var errLong = errors.New("body is too long")

// exactly takes so many bytes, in time.
type exactly struct {
	ctx  context.Context
	w    io.Writer
	left int64
}

func (e *exactly) Write(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	if int64(len(p)) > e.left {
		return 0, errLong
	}
	n, err := e.w.Write(p)
	e.left -= int64(n)
	return n, err
}
