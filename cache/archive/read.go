package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"lector/cache"
)

// errReadOnly is what a file answers to whoever wants to change it.
var errReadOnly = errors.New("an exported file is only read")

// ReadFile opens a safetensors file of this package as a space that holds one handle, so that what reads a store reads
// it, too. It checks the header and the file's size; Copy and cache.Space.Verify check the rest.
// Errors: cache.ErrCorrupt and cache.ErrIncompatible, saying what is wrong.
func ReadFile(r io.ReaderAt, size int64) (*cache.Space, cache.Digest, error) {
	header, err := readHeader(r, size)
	if err != nil {
		return nil, cache.Digest{}, err
	}
	h, m, err := parseHeader(header)
	if err != nil {
		return nil, cache.Digest{}, err
	}
	p, err := newPlan(h, m)
	if err != nil {
		return nil, cache.Digest{}, fmt.Errorf("%w: %w", cache.ErrCorrupt, err)
	}
	if !bytes.Equal(p.header[8:], header) {
		return nil, cache.Digest{}, fmt.Errorf("its header is not the one that belongs to its handle and manifest: %w", cache.ErrCorrupt)
	}
	if p.size != size {
		return nil, cache.Digest{}, fmt.Errorf("it has %d bytes, and its snapshot needs %d: %w", size, p.size, cache.ErrCorrupt)
	}
	f := &file{r: r, plan: p, manifest: m, small: map[string][]byte{}, blobs: map[string]cache.Piece{}}
	body, err := m.Encode()
	if err != nil {
		return nil, cache.Digest{}, err
	}
	d := cache.Sum(h.Encode())
	f.small[h.Tenant+"/handles/"+d.String()] = h.Encode()
	f.small[h.Tenant+"/manifests/"+h.Manifest.String()] = body
	for _, b := range m.Pieces() {
		f.blobs[h.Tenant+"/blobs/"+b.Blob.Digest.String()] = b
	}
	return &cache.Space{Store: f, Tenant: h.Tenant}, d, nil
}

// readHeader reads the header, whose length is checked before anything is made for it.
func readHeader(r io.ReaderAt, size int64) ([]byte, error) {
	var length [8]byte
	if _, err := r.ReadAt(length[:], 0); err != nil && (size < 8 || !errors.Is(err, io.EOF)) {
		return nil, fmt.Errorf("read header: %w: %w", cache.ErrCorrupt, err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if size < 8 || n > maxHeader || n > uint64(size-8) {
		return nil, fmt.Errorf("a header of %d bytes in a file of %d is no safetensors file: %w", n, size, cache.ErrCorrupt)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 8); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read header: %w", err)
	}
	return header, nil
}

// parseHeader takes the handle and the manifest out of a header. The tensors are not read: they follow from the manifest.
func parseHeader(header []byte) (h cache.Handle, m cache.Manifest, err error) {
	var top struct {
		About description `json:"__metadata__"`
	}
	if err := json.Unmarshal(header, &top); err != nil {
		return h, m, fmt.Errorf("its header is damaged: %w: %w", cache.ErrCorrupt, err)
	}
	switch about := top.About.Format; {
	case about == format:
	case strings.HasPrefix(about, "lector snapshot "):
		return h, m, fmt.Errorf("it is a %.40q, and this lector reads %q: use a newer lector: %w", about, format, cache.ErrIncompatible)
	default:
		return h, m, fmt.Errorf("it is no exported snapshot: its metadata does not say so: %w", cache.ErrCorrupt)
	}
	if h, err = cache.DecodeHandle([]byte(top.About.Handle)); err != nil {
		return h, m, err
	}
	if m, err = cache.DecodeManifest([]byte(top.About.Manifest)); err != nil {
		return h, m, err
	}
	if cache.Sum([]byte(top.About.Manifest)) != h.Manifest {
		return h, m, fmt.Errorf("its manifest is not the one of its handle: %w", cache.ErrCorrupt)
	}
	return h, m, nil
}

// file is an exported file as a store.
type file struct {
	r        io.ReaderAt
	plan     plan
	manifest cache.Manifest
	small    map[string][]byte
	blobs    map[string]cache.Piece
}

var (
	_ cache.Store    = (*file)(nil)
	_ cache.Remedied = (*file)(nil)
)

// Remedy implements cache.Remedied: nobody can delete a part of a file, and whoever exported it still has the snapshot.
func (f *file) Remedy() string {
	return "copy the file from where it came from once more, or export the snapshot again"
}

// Get implements cache.Store.
func (f *file) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	o, err := f.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if off < 0 || off > o.Size || n > o.Size-off {
		return nil, fmt.Errorf("get %s: %d bytes from %d are beyond its end at %d", name, n, off, o.Size)
	}
	if n < 0 {
		n = o.Size - off
	}
	var whole io.Reader = bytes.NewReader(f.small[name])
	if p, ok := f.blobs[name]; ok {
		var parts []io.Reader
		for _, at := range f.plan.spans(f.manifest, p) {
			parts = append(parts, io.NewSectionReader(f.r, at.off, at.n))
		}
		whole = io.MultiReader(parts...)
	}
	if _, err := io.CopyN(io.Discard, whole, off); err != nil {
		return nil, fmt.Errorf("get %s: %w", name, err)
	}
	return io.NopCloser(io.LimitReader(whole, n)), nil
}

// Stat implements cache.Store. A file has no clock.
func (f *file) Stat(ctx context.Context, name string) (cache.Object, error) {
	if err := cache.CheckName(name); err != nil {
		return cache.Object{}, err
	}
	if err := ctx.Err(); err != nil {
		return cache.Object{}, err
	}
	if p, ok := f.blobs[name]; ok {
		return cache.Object{Name: name, Size: p.Blob.Size, Time: time.Unix(0, 0)}, nil
	}
	if b, ok := f.small[name]; ok {
		return cache.Object{Name: name, Size: int64(len(b)), Time: time.Unix(0, 0)}, nil
	}
	return cache.Object{}, fmt.Errorf("look for %s: %w", name, cache.ErrNotFound)
}

// Put implements cache.Store and refuses.
func (f *file) Put(_ context.Context, name string, _ io.ReadSeeker, _ int64, _ cache.PutMode) error {
	return fmt.Errorf("put %s: %w", name, errReadOnly)
}

// Delete implements cache.Store and refuses.
func (f *file) Delete(_ context.Context, name string) error {
	return fmt.Errorf("delete %s: %w", name, errReadOnly)
}

// List implements cache.Store.
func (f *file) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return func(yield func(cache.Object, error) bool) {
		if err := cache.CheckPrefix(prefix); err != nil {
			yield(cache.Object{}, err)
			return
		}
		names := slices.AppendSeq(slices.Collect(maps.Keys(f.small)), maps.Keys(f.blobs))
		slices.Sort(names)
		for _, name := range names {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			o, err := f.Stat(ctx, name)
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}
