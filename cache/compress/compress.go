// Package compress keeps blobs in fewer bytes: a Store that wraps another and stores the rows and recurrent states put
// into it as zstd of byte planes, where that is smaller. It owns the names of blobs that end in ".zst".
//
// What it promises:
//
//  1. What is read is what was put: names, digests, keys and sizes are those of the plain bytes, whatever form an object
//     has. Each blob has the form that is smaller; one that does not shrink lies plain.
//  2. It reads both forms, whether it writes the compressed one or not.
//  3. Nothing is allocated on the word of stored bytes but one block of 1 MiB; a block that opens to another size than the
//     header says is cache.ErrCorrupt, and what follows the last one, too.
//
// Of a compressed object Stat says the plain size, and List what it takes. Floating-point numbers of a state look like
// noise to a compressor but for their exponents, so the bytes of a block are sorted by their place in a number first. The
// form is a matter of the store alone and in no identity; two writers of one blob may leave both forms, which is no harm.
// Everything but blobs passes through. A Store may be used from any goroutine. Start reading at Put; block.go has the form.
package compress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/klauspost/compress/zstd"

	"lector/cache"
)

// suffix ends the name of a compressed blob.
const suffix = ".zst"

// Store is a cache.Store that compresses blobs into another.
type Store struct {
	inner   cache.Store
	write   bool
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

var _ cache.Store = (*Store)(nil)

// New wraps a store. With write, blobs are compressed as they are put; without it, those that are compressed are read,
// and chunks can be staged where the store beneath can stage them.
func New(inner cache.Store, write bool) (cache.Store, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithWindowSize(blockSize))
	if err != nil {
		return nil, fmt.Errorf("prepare compression: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(blockSize), zstd.WithDecoderMaxWindow(blockSize), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("prepare compression: %w", err)
	}
	s := &Store{inner, write, enc, dec}
	if st, ok := inner.(cache.Stager); ok && !write {
		return stager{s, st}, nil
	}
	return s, nil
}

// stager is a Store over one that can stage, which puts what is staged as it is.
type stager struct {
	*Store
	cache.Stager
}

// isBlob says whether an object is rows or recurrent state: <tenant>/blobs/<digest> or <tenant>/rolling/<job>/<digest>.
func isBlob(name string) bool {
	part := strings.Split(name, "/")
	if len(part) != 3 || part[1] != "blobs" {
		if len(part) != 4 || part[1] != "rolling" {
			return false
		}
	}
	_, err := cache.ParseDigest(part[len(part)-1])
	return err == nil
}

// Put implements cache.Store. A blob in either form is there.
func (s *Store) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	if !s.write || !isBlob(name) || size > cache.MaxBlob {
		return s.inner.Put(ctx, name, body, size, how)
	}
	if how == cache.IfAbsent {
		if _, err := s.inner.Stat(ctx, name); !errors.Is(err, cache.ErrNotFound) {
			if err == nil {
				err = s.inner.Put(ctx, name, body, size, how) // it says that the object is there, and that it is durable
			}
			return err
		}
	}
	plain, err := readBody(ctx, body, size)
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	form, other := name, name+suffix
	if packed, ok := pack(s.encoder, plain); ok {
		form, other, plain = other, form, packed
	}
	if err := s.inner.Put(ctx, form, bytes.NewReader(plain), int64(len(plain)), how); err != nil || how == cache.IfAbsent {
		return err
	}
	return s.inner.Delete(ctx, other) // what was replaced must not be read in its place
}

// readBody reads a body, which must have its size.
func readBody(ctx context.Context, body io.ReadSeeker, size int64) ([]byte, error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(cache.ContextReader(ctx, io.LimitReader(body, size+1)))
	if err == nil && int64(len(b)) != size {
		err = fmt.Errorf("body does not have %d bytes: %w", size, io.ErrUnexpectedEOF)
	}
	return b, err
}

// Get implements cache.Store.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	r, err := s.inner.Get(ctx, name, off, n)
	if !errors.Is(err, cache.ErrNotFound) || !isBlob(name) {
		return r, err
	}
	packed, perr := s.inner.Get(ctx, name+suffix, 0, -1)
	if errors.Is(perr, cache.ErrNotFound) {
		return nil, err
	}
	if perr != nil {
		return nil, perr
	}
	var part io.ReadCloser
	opened, err := newReader(s.decoder, name, packed)
	if err == nil {
		part, err = opened.part(off, n)
	}
	if err != nil {
		return nil, errors.Join(err, packed.Close())
	}
	return part, nil
}

// Stat implements cache.Store. A compressed object that was cut has no size that a whole one has.
func (s *Store) Stat(ctx context.Context, name string) (cache.Object, error) {
	o, err := s.inner.Stat(ctx, name)
	if !errors.Is(err, cache.ErrNotFound) || !isBlob(name) {
		return o, err
	}
	packed, perr := s.inner.Stat(ctx, name+suffix)
	if errors.Is(perr, cache.ErrNotFound) {
		return o, err
	}
	if perr != nil {
		return cache.Object{}, perr
	}
	h, err := s.header(ctx, name, packed.Size)
	if errors.Is(err, cache.ErrCorrupt) || err == nil && h.stored != packed.Size {
		h.plain, err = 0, nil // who asks for a size finds that it is not the right one, and writes the object again
	}
	return cache.Object{Name: name, Size: h.plain, Time: packed.Time}, err
}

// header reads that of a compressed object.
func (s *Store) header(ctx context.Context, name string, size int64) (header, error) {
	r, err := s.inner.Get(ctx, name+suffix, 0, min(size, headerSize))
	if err != nil {
		return header{}, err
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return header{}, fmt.Errorf("read %s: %w", name, err)
	}
	return parseHeader(name, b)
}

// Stored is what a blob takes, and whether it is compressed. Errors: cache.ErrNotFound.
func (s *Store) Stored(ctx context.Context, name string) (size int64, compressed bool, err error) {
	o, err := s.inner.Stat(ctx, name)
	if errors.Is(err, cache.ErrNotFound) && isBlob(name) {
		if packed, perr := s.inner.Stat(ctx, name+suffix); !errors.Is(perr, cache.ErrNotFound) {
			return packed.Size, true, perr
		}
	}
	return o.Size, false, err
}

// Delete implements cache.Store, of both forms.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.inner.Delete(ctx, name); err != nil || !isBlob(name) {
		return err
	}
	return s.inner.Delete(ctx, name+suffix)
}

// List implements cache.Store. Names keep their order, since digests are of one length.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return func(yield func(cache.Object, error) bool) {
		last := ""
		for o, err := range s.inner.List(ctx, prefix) {
			if plain, ok := strings.CutSuffix(o.Name, suffix); ok && isBlob(plain) {
				o.Name = plain
			}
			if o.Name == last && err == nil {
				continue // both forms: the plain one came first
			}
			last = o.Name
			if strings.HasPrefix(o.Name, prefix) && !yield(o, err) {
				return
			}
			if err != nil {
				return
			}
		}
	}
}

// Probe asks the store beneath whether it does what a writer needs, where it can say so.
func (s *Store) Probe(ctx context.Context) error {
	if p, ok := s.inner.(interface{ Probe(context.Context) error }); ok {
		return p.Probe(ctx)
	}
	return nil
}
