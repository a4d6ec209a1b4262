package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Get implements cache.Store. An object longer than one part is read by several requests at a time, all of one
// version of it. The reader ends with the context.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, fmt.Errorf("get %s: %d bytes from %d is no range", name, n, off)
	}
	if n == 0 {
		return s.nothing(ctx, name, off, n)
	}
	length := s.opt.Part
	if n > 0 {
		length = min(length, n)
	}
	first, err := s.fetch(ctx, part{key: key, off: off, n: length})
	if status(err) == http.StatusRequestedRangeNotSatisfiable {
		return s.nothing(ctx, name, off, n)
	}
	if err != nil {
		return nil, fail("get", name, err)
	}
	if n > first.total-off {
		return nil, beyond(name, off, n, first.total)
	}
	if n < 0 {
		n = first.total - off
	}
	if int64(len(first.data)) >= n {
		return io.NopCloser(bytes.NewReader(first.data[:n])), nil
	}
	return s.stream(ctx, name, first, part{key: key, off: off + int64(len(first.data)), n: n - int64(len(first.data)), etag: first.etag}), nil
}

// nothing answers for a range of no bytes: the end of an object is one, what lies beyond it is not.
func (s *Store) nothing(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	object, err := s.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if off > object.Size || n > 0 {
		return nil, beyond(name, off, n, object.Size)
	}
	if n < 0 && off < object.Size {
		return nil, fmt.Errorf("get %s: %w: it refused byte %d of %d", name, errRange, off, object.Size)
	}
	return io.NopCloser(bytes.NewReader(nil)), nil
}

func beyond(name string, off, n, size int64) error {
	return fmt.Errorf("get %s: %d bytes from %d are beyond its end at %d", name, n, off, size)
}

// part is a range of an object; with an etag, of that version alone.
type part struct {
	key    *string
	off, n int64
	etag   *string
}

// fetched is what a part held.
type fetched struct {
	data  []byte
	total int64 // of the object
	etag  *string
}

// fetch reads a part whole, or less of it where the object ends.
func (s *Store) fetch(ctx context.Context, p part) (got fetched, err error) {
	err = s.try(ctx, p.n, func(ctx context.Context) error {
		got, err = s.fetchOnce(ctx, p)
		return err
	})
	return got, err
}

func (s *Store) fetchOnce(ctx context.Context, p part) (fetched, error) {
	last := p.n - 1
	if last += p.off; last < 0 {
		last = math.MaxInt64
	}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.opt.Bucket, Key: p.key, IfMatch: p.etag, Range: aws.String(fmt.Sprintf("bytes=%d-%d", p.off, last)),
	})
	if err != nil {
		return fetched{}, err
	}
	defer out.Body.Close()
	n := aws.ToInt64(out.ContentLength)
	total, err := rangeTotal(aws.ToString(out.ContentRange), p.off, n)
	if err != nil {
		return fetched{}, err
	}
	if n > p.n || n < min(p.n, total-p.off) {
		return fetched{}, fmt.Errorf("%w: %d bytes for %d from %d", errRange, n, p.n, p.off)
	}
	got := fetched{make([]byte, n), total, out.ETag}
	_, err = io.ReadFull(out.Body, got.data)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return got, err
}

// rangeTotal reads "bytes 0-9/100"; without one the store sent the whole object.
func rangeTotal(header string, off, n int64) (int64, error) {
	if header == "" && off == 0 {
		return n, nil
	}
	want := fmt.Sprintf("bytes %d-%d/", off, off+n-1)
	total, err := strconv.ParseInt(strings.TrimPrefix(header, want), 10, 64)
	if !strings.HasPrefix(header, want) || err != nil || total < off+n {
		return 0, fmt.Errorf("%w: %.80q for %s…", errRange, header, want)
	}
	return total, nil
}

// stream reads the parts of an object in order, some of them ahead.
type stream struct {
	store  *Store
	ctx    context.Context
	cancel context.CancelFunc
	name   string
	rest   part // not asked for yet
	ahead  []chan arrival
	data   []byte
	err    error
}

// arrival is a part that was asked for.
type arrival struct {
	fetched
	err error
}

func (s *Store) stream(ctx context.Context, name string, first fetched, rest part) *stream {
	r := &stream{store: s, name: name, rest: rest, data: first.data}
	r.ctx, r.cancel = context.WithCancel(ctx)
	for range s.opt.Parallel {
		r.ask()
	}
	return r
}

// ask begins to read the next part.
func (r *stream) ask() {
	if r.rest.n == 0 {
		return
	}
	p := r.rest
	p.n = min(p.n, r.store.opt.Part)
	r.rest.off += p.n
	r.rest.n -= p.n
	arrives := make(chan arrival, 1)
	r.ahead = append(r.ahead, arrives)
	go func() {
		got, err := r.store.fetch(r.ctx, p)
		if err == nil && int64(len(got.data)) != p.n {
			err = fmt.Errorf("%w: it ends at byte %d now", errRange, got.total)
		}
		arrives <- arrival{got, err}
	}()
}

// Read implements io.Reader.
func (r *stream) Read(b []byte) (int, error) {
	for len(r.data) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.next()
	}
	n := copy(b, r.data)
	r.data = r.data[n:]
	return n, nil
}

// next waits for the part that follows.
func (r *stream) next() {
	if len(r.ahead) == 0 {
		r.err = io.EOF
		return
	}
	got := <-r.ahead[0]
	r.ahead = r.ahead[1:]
	r.data = got.data
	switch {
	case got.err == nil:
		r.ask()
	case status(got.err) == http.StatusPreconditionFailed:
		r.data, r.err = nil, fmt.Errorf("get %s: it was written again while it was read", r.name)
	default:
		r.data, r.err = nil, fail("get", r.name, got.err)
	}
}

// Close gives up what is still being read.
func (r *stream) Close() error {
	r.cancel()
	r.err = fmt.Errorf("get %s: read after close", r.name)
	r.data = nil
	return nil
}
