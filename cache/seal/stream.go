package seal

import (
	"bufio"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"lector/cache"
)

// A sealed object is a header and segments:
//
//	header  = "lector sealed 1\n" || key id (8 bytes) || salt (32 random bytes)
//	segment = AES-256-GCM of up to 64 KiB, each full but the last; an empty object has one empty segment
//
// The key is HKDF-SHA-256( object key, salt, "lector object 1 " || name ), the nonce 3 zero bytes || the segment's number as 8
// bytes big-endian || 1 in the last segment and 0 in the others. The header is authenticated with each segment.
const (
	magic        = "lector sealed 1\n"
	magicFamily  = "lector sealed "
	saltSize     = 32
	headerSize   = len(magic) + idBytes + saltSize
	segmentSize  = 64 << 10
	tagSize      = 16
	sealedLength = segmentSize + tagSize
)

// sealedSize is the size of an object of n bytes in the store beneath.
func sealedSize(n int64) int64 {
	segments := max((n+segmentSize-1)/segmentSize, 1)
	return int64(headerSize) + n + segments*tagSize
}

// openedSize undoes sealedSize. For a size that no sealed object has, as a cut one's, it is that of the largest whole
// object that fits, and so never the right one.
func openedSize(n int64) int64 {
	n -= int64(headerSize)
	if n < tagSize {
		return 0
	}
	full := n / sealedLength
	rest := n - full*sealedLength
	return full*segmentSize + max(rest-tagSize, 0)
}

// aead is the cipher of one object.
func (k Key) aead(salt []byte, name string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, k.object, salt, "lector object 1 "+name, keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// nonce is that of a segment.
func nonce(segment int64, last bool) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint64(b[3:], uint64(segment))
	if last {
		b[11] = 1
	}
	return b
}

// sealer is the sealed form of a body, which may be read more than once: the same bytes every time.
type sealer struct {
	body   io.ReadSeeker
	size   int64 // sealed
	header []byte
	aead   cipher.AEAD
	err    error // of making the cipher: it comes with the first read

	want    int64 // where the next read begins
	at      int64 // where rest begins; -1 before the first read
	in      *bufio.Reader
	segment int64
	done    bool
	plain   []byte
	sealed  []byte // of the segment at hand
	rest    []byte // of sealed, not read yet
}

// newSealer seals a body of n bytes under a salt that it draws.
func newSealer(k Key, name string, body io.ReadSeeker, n int64) *sealer {
	s := &sealer{body: body, size: sealedSize(n), at: -1, in: bufio.NewReaderSize(nil, segmentSize), plain: make([]byte, segmentSize)}
	id, err := hex.DecodeString(k.id)
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails: package crypto/rand ends the program instead
	s.header = append(append([]byte(magic), id...), salt...)
	aead, cerr := k.aead(salt, name)
	s.aead, s.err = aead, errors.Join(err, cerr)
	return s
}

// Seek implements io.Seeker. It moves nothing before the next read, since clients ask for the size this way.
func (s *sealer) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.want
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning of a sealed body")
	}
	s.want = offset
	return offset, nil
}

// rewind begins anew.
func (s *sealer) rewind() error {
	if s.err != nil {
		return s.err
	}
	if _, err := s.body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	s.in.Reset(s.body)
	s.at, s.segment, s.done, s.rest = 0, 0, false, s.header
	return nil
}

// Read implements io.Reader.
func (s *sealer) Read(p []byte) (int, error) {
	if s.at < 0 || s.want < s.at {
		if err := s.rewind(); err != nil {
			return 0, err
		}
	}
	for {
		skip := min(s.want-s.at, int64(len(s.rest)))
		s.at, s.rest = s.at+skip, s.rest[skip:]
		if len(s.rest) > 0 {
			break
		}
		if s.done {
			return 0, io.EOF
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.at, s.rest = s.at+int64(n), s.rest[n:]
	s.want = s.at
	return n, nil
}

// next seals a segment. It is the last when nothing follows it.
func (s *sealer) next() error {
	n, err := io.ReadFull(s.in, s.plain)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if _, err := s.in.Peek(1); errors.Is(err, io.EOF) {
		s.done = true
	} else if err != nil {
		return err
	}
	s.sealed = s.aead.Seal(s.sealed[:0], nonce(s.segment, s.done), s.plain[:n], s.header)
	s.rest = s.sealed
	s.segment++
	return nil
}

// opener reads a sealed object from its first segment, or from a later one, and gives nothing that has not opened.
type opener struct {
	key   Key
	name  string
	inner io.ReadCloser
	in    *bufio.Reader
	aead  cipher.AEAD
	aad   []byte

	segment int64
	partial bool // what is read ends before the last segment
	done    bool
	sealed  []byte
	plain   []byte
	err     error
}

func newOpener(k Key, name string, r io.ReadCloser) *opener {
	return &opener{key: k, name: name, inner: r, in: bufio.NewReaderSize(r, sealedLength), sealed: make([]byte, sealedLength)}
}

// damaged says what is wrong with an object.
func (o *opener) damaged(format string, args ...any) error {
	return fmt.Errorf("object %s is damaged under %v: %s: %w", o.name, o.key, fmt.Sprintf(format, args...), cache.ErrCorrupt)
}

// start reads the header.
func (o *opener) start() error {
	header := make([]byte, headerSize)
	n, err := io.ReadFull(o.in, header)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return o.begin(header[:n])
}

// begin makes the cipher that a header asks for.
func (o *opener) begin(header []byte) error {
	switch {
	case len(header) < headerSize:
		return o.damaged("it has %d bytes, fewer than a header", len(header))
	case !strings.HasPrefix(string(header), magicFamily):
		return o.damaged("it does not begin as a sealed object does")
	case !strings.HasPrefix(string(header), magic):
		return fmt.Errorf("object %s is sealed in another form, %.20q: use a newer lector: %w", o.name, header[:len(magic)], cache.ErrIncompatible)
	}
	if id := hex.EncodeToString(header[len(magic) : len(magic)+idBytes]); id != o.key.id {
		return o.damaged("it is sealed with key %s", id)
	}
	aead, err := o.key.aead(header[len(magic)+idBytes:], o.name)
	if err != nil {
		return fmt.Errorf("open %s: %w", o.name, err)
	}
	o.aead, o.aad = aead, header
	return nil
}

// Read implements io.Reader.
func (o *opener) Read(p []byte) (int, error) {
	for len(o.plain) == 0 {
		if o.err != nil {
			return 0, o.err
		}
		if o.err = o.next(); o.err != nil {
			return 0, o.err
		}
	}
	n := copy(p, o.plain)
	o.plain = o.plain[n:]
	return n, nil
}

// next opens a segment.
func (o *opener) next() error {
	if o.done {
		return io.EOF
	}
	if o.aead == nil {
		if err := o.start(); err != nil {
			return err
		}
	}
	n, err := io.ReadFull(o.in, o.sealed)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if _, err := o.in.Peek(1); errors.Is(err, io.EOF) {
		o.done = true
	} else if err != nil {
		return err
	}
	return o.open(o.sealed[:n], o.done && !o.partial)
}

// open gives the plaintext of a segment, and refuses an empty one behind others, which nobody seals.
func (o *opener) open(sealed []byte, last bool) error {
	plain, err := o.aead.Open(sealed[:0], nonce(o.segment, last), sealed, o.aad)
	if err != nil || last && len(plain) == 0 && o.segment > 0 {
		return o.damaged("segment %d of 64 KiB does not open", o.segment)
	}
	o.plain = plain
	o.segment++
	return nil
}

// Close implements io.Closer.
func (o *opener) Close() error {
	o.err = fmt.Errorf("get %s: read after close", o.name)
	o.plain = nil
	return o.inner.Close()
}

// part is a range of an object.
type part struct {
	name, inner string
	off, n      int64
}

// getRange opens the segments that hold a range.
func (s *Store) getRange(ctx context.Context, k Key, p part) (io.ReadCloser, error) {
	o, err := s.inner.Stat(ctx, p.inner)
	if err != nil {
		return nil, err
	}
	size := openedSize(o.Size)
	if p.off < 0 || p.off > size || p.n > size-p.off {
		return nil, fmt.Errorf("%d bytes from %d are beyond its end at %d", p.n, p.off, size)
	}
	if p.n < 0 {
		p.n = size - p.off
	}
	header, err := s.inner.Get(ctx, p.inner, 0, min(int64(headerSize), o.Size))
	if err != nil {
		return nil, err
	}
	opened := newOpener(k, p.name, header)
	if err := errors.Join(opened.start(), header.Close()); err != nil {
		return nil, err
	}
	first, end := p.off/segmentSize, (p.off+max(p.n, 1)-1)/segmentSize+1
	from, to := int64(headerSize)+first*sealedLength, min(int64(headerSize)+end*sealedLength, o.Size)
	if from >= to { // the end of an object that ends with its segment
		return io.NopCloser(strings.NewReader("")), nil
	}
	body, err := s.inner.Get(ctx, p.inner, from, to-from)
	if err != nil {
		return nil, err
	}
	opened.inner, opened.segment, opened.partial = body, first, to < o.Size
	opened.in.Reset(body)
	if _, err := io.CopyN(io.Discard, opened, p.off-first*segmentSize); err != nil {
		return nil, errors.Join(err, body.Close())
	}
	return limited{io.LimitReader(opened, p.n), opened}, nil
}

// limited is the beginning of an opened range.
type limited struct {
	io.Reader
	io.Closer
}
