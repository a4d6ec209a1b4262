package compress

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"lector/cache"
)

// A compressed object is a header and blocks:
//
//	header = "lector planes 1\n" || stride (1 byte: 1, 2 or 4) || plain size (8 bytes) || size of the object (8 bytes)
//	block  = plane || … (stride of them), for every 1 MiB of the plain bytes, the last one shorter
//	plane  = n (4 bytes) || n bytes
//
// Whole numbers are little-endian. The planes of a block are the bytes at 0, stride, 2 stride …, then those at 1, stride + 1 …,
// and so on, over as many whole numbers of stride bytes as there are; what is left is the end of the last plane. A plane lies
// as it is when n is its size, and otherwise, n being smaller, as a zstd frame: those of the low bits are noise and cost a copy.
const (
	magic      = "lector planes 1\n"
	headerSize = int64(len(magic)) + 1 + 8 + 8
	blockSize  = 1 << 20
	prefixSize = 4

	sampleSize = 64 << 10
	worthwhile = 0.97 // of the plain size: more is not worth the work of reading
)

// strides are those that a writer tries: bytes, halves, floats.
func strides() []int { return []int{4, 2, 1} }

// split sorts the bytes of a block into planes.
func split(dst, src []byte, stride int) {
	n := len(src) / stride
	for p := range stride {
		plane := dst[p*n : (p+1)*n]
		for i := range plane {
			plane[i] = src[i*stride+p]
		}
	}
	copy(dst[stride*n:], src[stride*n:])
}

// merge undoes split.
func merge(dst, src []byte, stride int) {
	n := len(src) / stride
	for p := range stride {
		for i, b := range src[p*n : (p+1)*n] {
			dst[i*stride+p] = b
		}
	}
	copy(dst[stride*n:], src[stride*n:])
}

// plane is where the p-th plane of a block of size bytes lies among its planes.
func plane(p, size, stride int) (from, to int) {
	n := size / stride
	if p == stride-1 {
		return p * n, size
	}
	return p * n, (p + 1) * n
}

// appendPlanes adds a block's planes to out, each in the form that is smaller.
func appendPlanes(enc *zstd.Encoder, out, planes []byte, stride int) []byte {
	for p := range stride {
		from, to := plane(p, len(planes), stride)
		at := len(out)
		out = append(out, 0, 0, 0, 0)
		out = enc.EncodeAll(planes[from:to], out)
		if len(out)-at-prefixSize >= to-from {
			out = append(out[:at+prefixSize], planes[from:to]...)
		}
		binary.LittleEndian.PutUint32(out[at:], uint32(len(out)-at-prefixSize))
	}
	return out
}

// bestStride tries the strides on a sample from the middle, and says whether any is worthwhile.
func bestStride(enc *zstd.Encoder, plain []byte) (stride int, ok bool) {
	from := max(len(plain)-sampleSize, 0) / 2 &^ 3
	sample := plain[from:min(from+sampleSize, len(plain))]
	best := int(worthwhile * float64(len(sample)))
	planes := make([]byte, len(sample))
	var out []byte
	for _, s := range strides() {
		split(planes, sample, s)
		if out = appendPlanes(enc, out[:0], planes, s); len(out) < best {
			stride, best, ok = s, len(out), true
		}
	}
	return stride, ok
}

// pack compresses; false says that it is not worthwhile.
func pack(enc *zstd.Encoder, plain []byte) ([]byte, bool) {
	stride, ok := bestStride(enc, plain)
	if !ok {
		return nil, false
	}
	out := append(make([]byte, 0, len(plain)), magic...)
	out = append(out, byte(stride))
	out = binary.LittleEndian.AppendUint64(out, uint64(len(plain)))
	out = binary.LittleEndian.AppendUint64(out, 0)
	planes := make([]byte, min(blockSize, len(plain)))
	for from := 0; from < len(plain); from += blockSize {
		block := plain[from:min(from+blockSize, len(plain))]
		split(planes[:len(block)], block, stride)
		out = appendPlanes(enc, out, planes[:len(block)], stride)
	}
	binary.LittleEndian.PutUint64(out[headerSize-8:], uint64(len(out)))
	return out, float64(len(out)) < worthwhile*float64(len(plain))
}

// header is what a compressed object says of itself.
type header struct {
	stride        int
	plain, stored int64
}

// damaged says what is wrong with an object.
func damaged(name, format string, args ...any) error {
	return fmt.Errorf("object %s%s is damaged: %s: %w", name, suffix, fmt.Sprintf(format, args...), cache.ErrCorrupt)
}

func parseHeader(name string, b []byte) (header, error) {
	const family = len(magic) - 2 // without the version and the line feed
	switch {
	case int64(len(b)) < headerSize:
		return header{}, damaged(name, "it has %d bytes, fewer than a header", len(b))
	case string(b[:family]) != magic[:family]:
		return header{}, damaged(name, "it does not begin as a compressed object does")
	case string(b[:len(magic)]) != magic:
		return header{}, fmt.Errorf("object %s%s is compressed in another form, %.20q: use a newer lector: %w", name, suffix, b[:len(magic)], cache.ErrIncompatible)
	}
	rest := b[len(magic):]
	plain, stored := binary.LittleEndian.Uint64(rest[1:]), binary.LittleEndian.Uint64(rest[9:])
	stride := int(rest[0])
	if stride != 1 && stride != 2 && stride != 4 || plain < 1 || plain > cache.MaxBlob || stored > 2*cache.MaxBlob {
		return header{}, damaged(name, "its header says stride %d, %d bytes in %d", stride, plain, stored)
	}
	return header{stride, int64(plain), int64(stored)}, nil
}

// reader opens a compressed object.
type reader struct {
	name    string
	inner   io.ReadCloser
	in      *bufio.Reader
	decoder *zstd.Decoder
	header  header
	at      int64  // plain bytes that were opened
	taken   int64  // bytes of the object that were read
	data    []byte // opened, not read yet
	packed  []byte
	planes  []byte
	block   []byte
	err     error
}

func newReader(dec *zstd.Decoder, name string, r io.ReadCloser) (*reader, error) {
	o := &reader{name: name, inner: r, in: bufio.NewReader(r), decoder: dec}
	b := make([]byte, headerSize)
	n, err := io.ReadFull(o.in, b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	o.taken = int64(n)
	if o.header, err = parseHeader(name, b[:n]); err != nil {
		return nil, err
	}
	return o, nil
}

// part is the range [off, off+n), or what lies behind off for a negative n.
func (o *reader) part(off, n int64) (io.ReadCloser, error) {
	size := o.header.plain
	if off < 0 || off > size || n > size-off {
		return nil, fmt.Errorf("get %s: %d bytes from %d are beyond its end at %d", o.name, n, off, size)
	}
	if _, err := io.CopyN(io.Discard, o, off); err != nil {
		return nil, err
	}
	if n < 0 {
		return o, nil
	}
	return limited{io.LimitReader(o, n), o}, nil
}

// limited is the beginning of what a reader still has.
type limited struct {
	io.Reader
	io.Closer
}

// Read implements io.Reader.
func (o *reader) Read(p []byte) (int, error) {
	for len(o.data) == 0 {
		if o.err == nil && o.at < o.header.plain {
			o.err = o.next()
		} else if o.err == nil {
			o.err = o.finish()
		}
		if len(o.data) == 0 && o.err != nil {
			return 0, o.err
		}
	}
	n := copy(p, o.data)
	o.data = o.data[n:]
	return n, nil
}

// finish is io.EOF, and an error when something follows the last block.
func (o *reader) finish() error {
	switch _, err := o.in.Peek(1); {
	case o.taken != o.header.stored:
		return damaged(o.name, "it has %d bytes, and its header says %d", o.taken, o.header.stored)
	case err == nil:
		return damaged(o.name, "something follows its last block")
	case errors.Is(err, io.EOF):
		return io.EOF
	default:
		return err
	}
}

// next opens a block.
func (o *reader) next() error {
	size := int(min(blockSize, o.header.plain-o.at))
	if o.planes == nil {
		o.packed, o.planes, o.block = make([]byte, size), make([]byte, size), make([]byte, size)
	}
	for p := range o.header.stride {
		from, to := plane(p, size, o.header.stride)
		if err := o.plane(o.planes[from:to:to]); err != nil {
			return err
		}
	}
	merge(o.block[:size], o.planes[:size], o.header.stride)
	o.data = o.block[:size]
	o.at += int64(size)
	return nil
}

// plane reads one plane into a slice of its size and capacity.
func (o *reader) plane(to []byte) error {
	number := o.at / blockSize
	var prefix [prefixSize]byte
	if err := o.fill(prefix[:], number); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(prefix[:])
	switch {
	case uint64(n) > uint64(len(to)):
		return damaged(o.name, "a plane of block %d says %d bytes for %d", number, n, len(to))
	case int(n) == len(to):
		return o.fill(to, number)
	}
	if err := o.fill(o.packed[:n], number); err != nil {
		return err
	}
	out, err := o.decoder.DecodeAll(o.packed[:n], to[:0])
	if err != nil {
		return damaged(o.name, "block %d does not open: %v", number, err)
	}
	if len(out) != len(to) {
		return damaged(o.name, "a plane of block %d opens to %d bytes, not %d", number, len(out), len(to))
	}
	return nil
}

// fill reads a part of a block whole.
func (o *reader) fill(b []byte, number int64) error {
	n, err := io.ReadFull(o.in, b)
	o.taken += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged(o.name, "it ends in block %d", number)
	}
	return err
}

// Close implements io.Closer.
func (o *reader) Close() error {
	o.err = fmt.Errorf("get %s: read after close", o.name)
	o.data = nil
	return o.inner.Close()
}
