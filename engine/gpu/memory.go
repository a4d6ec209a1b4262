package gpu

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"lector/engine/ops"
	"lector/metal"
)

// memory is one allocation on the device, seen by the host as well. Free empties it, so that a late use panics.
type memory struct {
	buf    metal.Buffer
	bytes  int64 // counted against the limit, page rounding included
	floats int   // of a tensor
}

// Floats is the host's view of a range, coherent after Wait. Where the device's memory lies apart it is a copy as of now.
func (m *memory) Floats(from, to int) []float32 {
	if m.buf == nil || to > m.floats {
		panic("gpu: the host looks at a tensor after Free, or past its end")
	}
	if local, ok := m.buf.(metal.LocalBuffer); ok {
		return floatsOf(local.Window(4*from, 4*(to-from)))
	}
	return floatsOf(m.buf.Bytes())[from:to]
}

// region is a place on the device: a buffer from an offset in bytes on. The zero region is unbound.
type region struct {
	buf metal.Buffer
	off int
}

// plus is the region n bytes further.
func (r region) plus(n int) region { return region{r.buf, r.off + n} }

// view is the host's view of n bytes there, coherent after Wait.
func (r region) view(n int) []byte {
	if local, ok := r.buf.(metal.LocalBuffer); ok {
		return local.Window(r.off, n)
	}
	return r.buf.Bytes()[r.off : r.off+n : r.off+n]
}

// write puts data there, which no pending work may use.
func (r region) write(data []byte) error {
	if local, ok := r.buf.(metal.LocalBuffer); ok {
		return local.Write(r.off, data)
	}
	copy(r.buf.Bytes()[r.off:], data)
	return nil
}

// at is where a tensor begins. It panics on a tensor that was freed.
func at(t ops.Tensor) region {
	m := t.Mem.(*memory)
	if m.buf == nil {
		panic("gpu: a tensor is used after Free")
	}
	return region{m.buf, 4 * t.Off}
}

// whole is where an allocation begins.
func (m *memory) whole() region { return region{m.buf, 0} }

// maxFloats bounds one allocation far below where sizes overflow.
const maxFloats = 1 << 40

// Alloc returns zeroed memory for rows x cols floats, or an error that says how much was wanted and what is left of
// Options.MemoryBytes.
func (b *Backend) Alloc(rows, cols int) (ops.Tensor, error) {
	if rows < 0 || cols < 0 || cols > 0 && rows > maxFloats/cols {
		return ops.Tensor{}, fmt.Errorf("allocate %d x %d floats: not a size that memory can have", rows, cols)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m, err := b.allocate(4*rows*cols, near)
	if err != nil {
		return ops.Tensor{}, fmt.Errorf("allocate %d x %d floats: %w", rows, cols, err)
	}
	m.floats = rows * cols
	return ops.Tensor{Rows: rows, Cols: cols, Mem: m}, nil
}

// Free gives the whole allocation behind t back once no pending work can use it. Freeing an empty tensor, or one
// twice, is harmless.
func (b *Backend) Free(t ops.Tensor) {
	m, ok := t.Mem.(*memory)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flush() // it may be for what waits
	b.release(m)
}

// place is which memory of the device something is put in. The two are one where the device shares the host's.
type place bool

const (
	near   place = false // to the device: what only it works with
	shared place = true  // with the host: what the host writes or reads in every pass
)

// allocate takes n bytes from the device, rounded up to its page. Where the limit or the device has no room but
// memory is dying, it waits for the pending work and tries again.
func (b *Backend) allocate(n int, p place) (*memory, error) {
	m, err := b.tryAllocate(n, p)
	if err == nil || len(b.dying) == 0 {
		return m, err
	}
	if err := b.drain(context.Background()); err != nil {
		return nil, err
	}
	return b.tryAllocate(n, p)
}

func (b *Backend) tryAllocate(n int, p place) (*memory, error) {
	bytes := (int64(max(n, 4)) + int64(b.page) - 1) / int64(b.page) * int64(b.page)
	if b.limit > 0 && b.lent+bytes > b.limit {
		return nil, fmt.Errorf("%w: %d bytes wanted, %d of the limit of %d bytes are left: use a smaller chunk or raise the limit",
			ops.ErrMemory, bytes, max(0, b.limit-b.lent), b.limit)
	}
	buf, err := b.newBuffer(int(bytes), p)
	if err != nil {
		return nil, fmt.Errorf("%w: %d bytes of device memory with %d held: %w", ops.ErrMemory, bytes, b.lent, err)
	}
	b.lent += bytes
	return &memory{buf: buf, bytes: bytes}, nil
}

func (b *Backend) newBuffer(n int, p place) (metal.Buffer, error) {
	if b.apart != nil && p == near {
		return b.apart.NewLocalBuffer(n)
	}
	return b.device.NewBuffer(n)
}

// floatsOf views bytes as floats; a device's buffers are aligned to its page.
func floatsOf(data []byte) []float32 {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}

// bytesOf views a slice of 4-byte values, or of anything without pointers, as bytes.
func bytesOf[T any](v []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(one)))
}

// release gives m back now or, with work pending, at the next drain.
func (b *Backend) release(m *memory) {
	if m == nil || m.buf == nil || m.bytes < 0 {
		return
	}
	b.dying = append(b.dying, &memory{buf: m.buf, bytes: m.bytes})
	m.buf, m.bytes = nil, -1
	if b.cmd.idle() {
		b.bury()
	}
}

// bury closes the freed buffers; no pending work may use them.
func (b *Backend) bury() {
	var errs []error
	for _, m := range b.dying {
		b.lent -= m.bytes
		errs = append(errs, m.buf.Close())
	}
	b.dying = b.dying[:0]
	b.fail(errors.Join(errs...))
}

// arena lends pieces of a few buffers, all taken back at once by reset. Its pieces are aligned to pieceAlign. It only
// grows: to what was lent at most between two resets.
type arena struct {
	place  place
	chunks []*memory
	at     int // chunk in use
	used   int // bytes of it
	lent   int // bytes since the last reset
	most   int // bytes between two resets
}

const (
	pieceAlign = 256
	chunkBytes = 1 << 18
)

// take lends n bytes of unknown content.
func (a *arena) take(b *Backend, n int) (region, error) {
	n = (max(n, 1) + pieceAlign - 1) / pieceAlign * pieceAlign
	for a.at < len(a.chunks) && a.used+n > int(a.chunks[a.at].bytes) {
		a.at, a.used = a.at+1, 0
	}
	if a.at == len(a.chunks) {
		m, err := b.allocate(max(n, chunkBytes, a.most-a.lent), a.place)
		if err != nil {
			return region{}, err
		}
		a.chunks, a.used = append(a.chunks, m), 0
	}
	chunk := a.chunks[a.at]
	r := region{chunk.buf, a.used}
	a.used += n
	a.lent += n
	return r, nil
}

// reset takes everything back. Where several chunks were needed, one takes their place with the next piece.
func (a *arena) reset(b *Backend) {
	a.most = max(a.most, a.lent)
	a.at, a.used, a.lent = 0, 0, 0
	if len(a.chunks) > 1 {
		for _, m := range a.chunks {
			b.release(m)
		}
		a.chunks = nil
	}
}

// release gives the chunks back to the device.
func (a *arena) release(b *Backend) {
	for _, m := range a.chunks {
		b.release(m)
	}
	*a = arena{place: a.place}
}
