package spool_test

import (
	"context"
	"io"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/spool"
)

// told counts the blobs that come with the digest that names them.
type told struct {
	cache.Store
	blobs, named *atomic.Int64
}

func (s told) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	if folder := path.Dir(name); strings.HasSuffix(folder, "/blobs") || strings.Contains(folder, "/rolling/") {
		s.blobs.Add(1)
		if b, ok := body.(cache.Summed); ok {
			if d, known := b.SHA256(); known && d.String() == path.Base(name) {
				s.named.Add(1)
			}
		}
	}
	return s.Store.Put(ctx, name, body, size, how)
}

// A store learns the digest of every blob with it, from a spool as from memory, so that it need not compute it again.
func TestBlobsComeWithTheirDigest(t *testing.T) {
	for name, private := range map[string]*bool{"straight": nil, "spool": new(bool), "private spool": func() *bool { b := true; return &b }()} {
		t.Run(name, func(t *testing.T) {
			store := told{cachetest.NewMemory(), &atomic.Int64{}, &atomic.Int64{}}
			s := &cache.Space{Store: store}
			if private != nil {
				s.Spool = open(t, spool.Options{Folder: filepath.Join(t.TempDir(), "spool"), Quota: 8 << 20, Store: store, Private: *private})
			}
			d := cachetest.Document{Space: s, Tokens: cachetest.Count(3, 30), Spooled: private != nil}
			handle, _, err := d.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := cachetest.Check(t.Context(), s, handle, d.Tokens); err != nil {
				t.Error(err)
			}
			if blobs, named := store.blobs.Load(), store.named.Load(); blobs < 4 || named != blobs {
				t.Errorf("%d of %d blobs came with their digest", named, blobs)
			}
		})
	}
}
