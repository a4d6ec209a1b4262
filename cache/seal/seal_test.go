package seal_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/archive"
	"lector/cache/branch"
	"lector/cache/cachetest"
	"lector/cache/dir"
	"lector/cache/gc"
	"lector/cache/s3"
	"lector/cache/s3/s3test"
	"lector/cache/seal"
	"lector/cache/sign"
	"lector/cache/tag"
)

// key is one of the tests' keys: its secret is 32 times a byte.
func key(t testing.TB, fill byte) seal.Key {
	t.Helper()
	k, err := seal.NewKey(bytes.Repeat([]byte{fill}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func open(t testing.TB, inner cache.Store, keys ...seal.Key) *seal.Store {
	t.Helper()
	s, err := seal.Open(t.Context(), inner, "default", keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		cachetest.Run(t, func(t *testing.T) cache.Store { return open(t, cachetest.NewMemory(), key(t, 1)) })
	})
	t.Run("two keys", func(t *testing.T) {
		cachetest.Run(t, func(t *testing.T) cache.Store { return open(t, cachetest.NewMemory(), key(t, 1), key(t, 2)) })
	})
	t.Run("dir", func(t *testing.T) {
		cachetest.Run(t, func(t *testing.T) cache.Store {
			inner, err := dir.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { inner.Close() })
			return open(t, inner, key(t, 1))
		})
	})
}

func TestStoreOnS3(t *testing.T) {
	server := s3test.Start(t)
	cachetest.Run(t, func(t *testing.T) cache.Store {
		inner, err := s3.Open(t.Context(), s3.Options{
			Bucket: server.Bucket(t), Endpoint: server.Endpoint, PathStyle: true, Prefix: "p",
			AccessKey: server.AccessKey, SecretKey: server.SecretKey, Backoff: time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { inner.Close() })
		return open(t, inner, key(t, 1))
	})
}

func put(t testing.TB, s cache.Store, name string, body []byte, how cache.PutMode) {
	t.Helper()
	if err := s.Put(t.Context(), name, bytes.NewReader(body), int64(len(body)), how); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, s cache.Store, name string, off, n int64) ([]byte, error) {
	t.Helper()
	r, err := s.Get(t.Context(), name, off, n)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// pattern is n bytes in which no two segments are alike.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + i>>16)
	}
	return b
}

// Every size around a segment's end comes back whole, by every range around its ends, and says its size.
func TestSegments(t *testing.T) {
	const segment = 64 << 10
	inner := cachetest.NewMemory()
	s := open(t, inner, key(t, 1))
	for _, n := range []int{0, 1, segment - 1, segment, segment + 1, 2 * segment, 3*segment + 5} {
		body := pattern(n)
		put(t, s, "t/blobs/x", body, cache.Replace)
		if got, err := get(t, s, "t/blobs/x", 0, -1); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes came back as %d, %v", n, len(got), err)
		}
		if o, err := s.Stat(t.Context(), "t/blobs/x"); err != nil || o.Size != int64(n) {
			t.Errorf("%d bytes: Stat says %d, %v", n, o.Size, err)
		}
		for _, at := range []int{0, 1, segment - 1, segment, segment + 1, 2 * segment, n - 1, n} {
			for _, to := range []int{at, at + 1, segment, 2 * segment, n} {
				if at < 0 || to < at || to > n {
					continue
				}
				if got, err := get(t, s, "t/blobs/x", int64(at), int64(to-at)); err != nil || !bytes.Equal(got, body[at:to]) {
					t.Errorf("[%d, %d) of %d bytes: %d bytes, %v", at, to, n, len(got), err)
				}
			}
		}
	}
}

// What lies beneath holds no plaintext: no byte of a state or a description, no name, no digest of anything.
func TestNothingIsReadable(t *testing.T) {
	inner := cachetest.NewMemory()
	space := &cache.Space{Store: open(t, inner, key(t, 1))}
	d := &cachetest.Document{Space: space, Tokens: cachetest.Count(100, 20), Job: "the-job"}
	h, m, err := d.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := space.PutDocument(t.Context(), d.Tokens); err != nil {
		t.Fatal(err)
	}
	if err := tag.Set(t.Context(), space, "a-secret-name", h); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(inner.Names(), "\n")
	for _, name := range inner.Names() {
		b, _ := inner.Bytes(name)
		all += string(b)
	}
	secrets := []string{"a-secret-name", h.String(), m.Chunks[0].Rows[0].Digest.String(), m.Chunks[0].Key.String(), "layers.0.k", "version", "the-job"}
	for _, r := range cachetest.State(d.Tokens) {
		if len(r.Data) >= 16 {
			secrets = append(secrets, string(r.Data[:16]))
		}
	}
	for _, s := range secrets {
		if strings.Contains(all, s) {
			t.Errorf("the store beneath holds %q", s)
		}
	}
	if err := cachetest.Check(t.Context(), space, h, d.Tokens); err != nil {
		t.Error(err)
	}
}

// Two writers of one tenant store what is equal once; under another key everything has another name.
func TestSharedWithinTheTenant(t *testing.T) {
	inner := cachetest.NewMemory()
	one, two := open(t, inner, key(t, 1)), open(t, inner, key(t, 1))
	put(t, one, "default/blobs/"+cache.Sum(nil).String(), []byte("body"), cache.IfAbsent)
	names := inner.Names()
	err := two.Put(t.Context(), "default/blobs/"+cache.Sum(nil).String(), strings.NewReader("body"), 4, cache.IfAbsent)
	if !errors.Is(err, cache.ErrExists) || !slices.Equal(inner.Names(), names) {
		t.Errorf("second writer: %v, %v", err, inner.Names())
	}
	other := cachetest.NewMemory()
	put(t, open(t, other, key(t, 2)), "default/blobs/"+cache.Sum(nil).String(), []byte("body"), cache.IfAbsent)
	for _, name := range other.Names() {
		if slices.Contains(names, name) {
			t.Errorf("two keys give one name: %s", name)
		}
	}
}

// A key that is missing, or another one, is one error that names the keys; so is an old key that was left out.
func TestKeys(t *testing.T) {
	inner := cachetest.NewMemory()
	first, second, third := key(t, 1), key(t, 2), key(t, 3)
	old := &cachetest.Document{Space: &cache.Space{Store: open(t, inner, first)}, Tokens: cachetest.Count(100, 20)}
	handle, _, err := old.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantSealed(t, seal.Check(t.Context(), inner, "default"), first.ID())
	_, err = seal.Open(t.Context(), inner, "default", []seal.Key{third})
	wantSealed(t, err, first.ID(), third.ID())
	if err := seal.Check(t.Context(), inner, "another"); err != nil {
		t.Errorf("another tenant: %v", err)
	}

	both := &cache.Space{Store: open(t, inner, second, first)}
	if err := cachetest.Check(t.Context(), both, handle, old.Tokens); err != nil {
		t.Errorf("old data under a rotated ring: %v", err)
	}
	fresh := &cachetest.Document{Space: both, Tokens: cachetest.Count(100, 20)}
	again, _, err := fresh.Read(t.Context())
	if err != nil || again != handle {
		t.Fatalf("the same document of the same identity: %v, %v", again, err)
	}
	// The toy's identity has no salt of the key, so both keys have the same names here; what was put under the
	// second key stands by itself.
	if _, err := tag.Get(t.Context(), both, "book"); !errors.Is(err, cache.ErrNotFound) {
		t.Error(err)
	}
	if err := tag.Set(t.Context(), both, "book", again); err != nil {
		t.Fatal(err)
	}
	alone := &cache.Space{Store: open(t, inner, second)}
	_, err = alone.Handle(t.Context(), cache.Sum([]byte("of the first key")))
	wantSealed(t, err, first.ID(), second.ID())
	if !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("%v is not ErrNotFound", err)
	}
	if d, err := tag.Get(t.Context(), alone, "book"); err != nil || d != again {
		t.Errorf("tag under the second key alone: %v, %v", d, err)
	}
}

func wantSealed(t *testing.T, err error, ids ...string) {
	t.Helper()
	if !errors.Is(err, cache.ErrSealed) {
		t.Fatalf("%v, want ErrSealed", err)
	}
	for _, id := range ids {
		if !strings.Contains(err.Error(), id) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q does not name key %s in one line", err, id)
		}
	}
}

// What is put under the first key is stored whatever older keys have stored, so that they can be retired.
func TestOldKeysCanBeRetired(t *testing.T) {
	inner := cachetest.NewMemory()
	put(t, open(t, inner, key(t, 1)), "default/blobs/x", []byte("body"), cache.IfAbsent)
	both := open(t, inner, key(t, 2), key(t, 1))
	if got, err := get(t, both, "default/blobs/x", 0, -1); err != nil || string(got) != "body" {
		t.Errorf("old object: %q, %v", got, err)
	}
	put(t, both, "default/blobs/x", []byte("body"), cache.IfAbsent)
	n := 0
	for range both.List(t.Context(), "") {
		n++
	}
	if n != 1 {
		t.Errorf("one name is listed %d times", n)
	}
	if got, err := get(t, open(t, inner, key(t, 2)), "default/blobs/x", 0, -1); err != nil || string(got) != "body" {
		t.Errorf("without the old key: %q, %v", got, err)
	}
	if err := both.Delete(t.Context(), "default/blobs/x"); err != nil {
		t.Fatal(err)
	}
	if _, err := both.Stat(t.Context(), "default/blobs/x"); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("deleted object: %v", err)
	}
}

// Everything that works on a store works on a sealed one: tags, signatures, forks, comparison, verification, export,
// import, collection.
func TestEverythingWorksSealed(t *testing.T) {
	inner := cachetest.NewMemory()
	ctx := t.Context()
	space := &cache.Space{Store: open(t, inner, key(t, 1))}
	d := &cachetest.Document{Space: space, Tokens: cachetest.Count(100, 30), Keep: func(int) bool { return true }}
	handle, m, err := d.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := sign.Generate(bytes.NewReader(bytes.Repeat([]byte{5}, 64)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tag.Set(ctx, space, "book", handle), sign.Sign(ctx, space, handle, secret)); err != nil {
		t.Fatal(err)
	}
	if _, err := sign.Verify(ctx, space, handle, []sign.Public{secret.Public()}); err != nil {
		t.Error(err)
	}
	if got, _, err := space.FindHandle(ctx, cache.HandleName(handle)[:14]); err != nil || got != handle {
		t.Errorf("by the beginning of its name: %v, %v", got, err)
	}
	h, err := space.Handle(ctx, handle)
	if err != nil {
		t.Fatal(err)
	}
	fork, _, err := branch.Fork(ctx, space, h, 16)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := branch.Diff(ctx, space, m, m); err != nil || !c.Equal() {
		t.Errorf("diff: %+v, %v", c, err)
	}
	if r, err := space.Verify(ctx, m); err != nil || r.Blobs != len(m.Pieces()) || r.Nodes != len(m.Chunks) {
		t.Errorf("verify: %+v, %v", r, err)
	}
	carry(t, space, d, handle)
	report, err := gc.Run(ctx, space, gc.Options{Alone: true})
	if err != nil || report.Deleted.Objects != 0 || report.Unknown.Objects != 0 {
		t.Errorf("gc: %+v, %v", report, err)
	}
	if err := errors.Join(tag.Remove(ctx, space, "book"), gc.Remove(ctx, space, handle), gc.Remove(ctx, space, fork)); err != nil {
		t.Fatal(err)
	}
	if _, err := gc.Run(ctx, space, gc.Options{Alone: true}); err != nil {
		t.Fatal(err)
	}
	if left := inner.Names(); len(left) != 2 { // the key's mark and the collector's clock
		t.Errorf("gc left %v", left)
	}
}

// carry takes a snapshot out of a sealed space and into another one under another key, by both forms.
func carry(t *testing.T, space *cache.Space, d *cachetest.Document, handle cache.Digest) {
	t.Helper()
	plain := &cache.Space{Store: cachetest.NewMemory()}
	if _, err := archive.Copy(t.Context(), space, plain, handle); err != nil {
		t.Fatal(err)
	}
	to := &cache.Space{Store: open(t, cachetest.NewMemory(), key(t, 9))}
	if _, err := archive.Copy(t.Context(), plain, to, handle); err != nil {
		t.Fatal(err)
	}
	if err := cachetest.Check(t.Context(), to, handle, d.Tokens); err != nil {
		t.Error(err)
	}
}

// A store that dies between any two effects of a read has marked the key before it sealed anything with it.
func TestKeyIsMarkedFirst(t *testing.T) {
	for after := range 3 {
		inner := cachetest.NewMemory()
		crash := cachetest.NewCrash(inner, -1)
		s := open(t, crash, key(t, 1))
		crash.After = after
		d := &cachetest.Document{Space: &cache.Space{Store: s}, Tokens: cachetest.Count(100, 20)}
		if _, _, err := d.Read(context.Background()); !errors.Is(err, cachetest.ErrCrashed) {
			t.Fatal(err)
		}
		names := inner.Names()
		if len(names) != after || after > 0 && !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "default/seals/") }) {
			t.Errorf("after %d effects: %v", after, names)
		}
	}
}
