package compress_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/compress"
)

// sized is what the tests need of a store.
type sized interface {
	cache.Store
	Stored(ctx context.Context, name string) (size int64, compressed bool, err error)
}

func open(t testing.TB, inner cache.Store, write bool) sized {
	t.Helper()
	s, err := compress.New(inner, write)
	if err != nil {
		t.Fatal(err)
	}
	return s.(sized)
}

func TestStore(t *testing.T) {
	for _, write := range []bool{true, false} {
		cachetest.Run(t, func(t *testing.T) cache.Store { return open(t, cachetest.NewMemory(), write) })
	}
}

// floats is n float32 that look like a state: of one sign and size more or less, and otherwise noise.
func floats(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 0, 4*n)
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())))
	}
	return b
}

// blobName is where a blob lies.
func blobName(b []byte) string { return "t/blobs/" + cache.Sum(b).String() }

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

// A state's numbers take less, keep their name, size and digest, and are read by a store that does not write so; noise lies plain.
func TestFormsOfABlob(t *testing.T) {
	inner := cachetest.NewMemory()
	s, plain := open(t, inner, true), open(t, inner, false)
	noise := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	for what, c := range map[string]struct {
		body       []byte
		compressed bool
	}{
		"floats":           {floats(600_000, 1), true},
		"floats and a bit": {append(floats(600_000, 2), 1, 2, 3), true},
		"zeros":            {make([]byte, 3<<20), true},
		"noise":            {noise, false},
		"small noise":      {noise[:5], false},
		"one byte":         {[]byte{7}, false},
	} {
		name := blobName(c.body)
		put(t, s, name, c.body, cache.IfAbsent)
		for _, reader := range []sized{s, plain} {
			if got, err := get(t, reader, name, 0, -1); err != nil || !bytes.Equal(got, c.body) {
				t.Fatalf("%s: %d bytes came back, %v", what, len(got), err)
			}
			if o, err := reader.Stat(t.Context(), name); err != nil || o.Size != int64(len(c.body)) || o.Name != name {
				t.Errorf("%s: Stat says %+v, %v", what, o, err)
			}
			size, compressed, err := reader.Stored(t.Context(), name)
			if err != nil || compressed != c.compressed || (size < int64(len(c.body))) != c.compressed {
				t.Errorf("%s: takes %d of %d bytes, compressed %v, %v", what, size, len(c.body), compressed, err)
			}
		}
		err := s.Put(t.Context(), name, bytes.NewReader(c.body), int64(len(c.body)), cache.IfAbsent)
		if !errors.Is(err, cache.ErrExists) {
			t.Errorf("%s: put again: %v", what, err)
		}
		put(t, s, name, c.body, cache.Replace)
		if err := s.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if left := inner.Names(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// Every range of a compressed blob is that of the plain one.
func TestRanges(t *testing.T) {
	s := open(t, cachetest.NewMemory(), true)
	body := floats(700_000, 3)
	put(t, s, blobName(body), body, cache.IfAbsent)
	rapid.Check(t, func(r *rapid.T) {
		off := rapid.IntRange(0, len(body)).Draw(r, "off")
		n := rapid.IntRange(-1, len(body)-off).Draw(r, "n")
		want := body[off:]
		if n >= 0 {
			want = body[off : off+n]
		}
		if got, err := get(t, s, blobName(body), int64(off), int64(n)); err != nil || !bytes.Equal(got, want) {
			r.Fatalf("[%d, +%d): %d bytes, %v", off, n, len(got), err)
		}
	})
	for _, c := range [][2]int64{{-1, 1}, {int64(len(body)) + 1, -1}, {1, int64(len(body))}, {1, math.MaxInt64}} {
		if _, err := get(t, s, blobName(body), c[0], c[1]); err == nil {
			t.Errorf("[%d, +%d) of %d bytes", c[0], c[1], len(body))
		}
	}
}

// Only blobs are compressed, and a listing has every name once, in order, whatever form each has.
func TestList(t *testing.T) {
	inner := cachetest.NewMemory()
	s, plain := open(t, inner, true), open(t, inner, false)
	zeros := make([]byte, 1000)
	for i := range 20 {
		zeros[0] = byte(i)
		put(t, []sized{s, plain}[i%2], blobName(zeros), zeros, cache.IfAbsent)
		if i%5 == 0 { // two writers leave both forms
			put(t, plain, blobName(zeros), zeros, cache.Replace)
		}
		put(t, s, "t/nodes/"+cache.Sum(zeros).String(), zeros, cache.IfAbsent)
		put(t, s, "t/rolling/job/"+cache.Sum(zeros).String(), zeros, cache.IfAbsent)
	}
	for prefix, want := range map[string]int{"t/": 60, "t/blobs/": 20, "t/nodes/": 20, "t/rolling/job/": 20, "": 60, blobName(zeros): 1} {
		last, n := "", 0
		for o, err := range s.List(t.Context(), prefix) {
			if n++; err != nil || o.Name <= last {
				t.Errorf("%q: %+v after %s, %v", prefix, o, last, err)
			}
			last = o.Name
		}
		if n != want {
			t.Errorf("%q lists %d, want %d", prefix, n, want)
		}
	}
	for _, name := range inner.Names() {
		if strings.HasPrefix(name, "t/nodes/") && strings.HasSuffix(name, ".zst") {
			t.Errorf("%s is compressed", name)
		}
	}
}

// A whole document gets the same manifest, handle and state, compressed or not.
func TestIdentityIsThatOfThePlainBytes(t *testing.T) {
	plain := &cachetest.Document{Space: &cache.Space{Store: cachetest.NewMemory()}, Tokens: make([]int32, 3000), Grid: 512, Keep: func(int) bool { return true }}
	packed := *plain
	inner := cachetest.NewMemory()
	packed.Space = &cache.Space{Store: open(t, inner, true)}
	want, _, err := plain.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, m, err := packed.Read(t.Context())
	if err != nil || got != want {
		t.Fatalf("handle %v, %v, want %v", got, err, want)
	}
	if err := cachetest.Check(t.Context(), packed.Space, got, plain.Tokens); err != nil {
		t.Error(err)
	}
	if r, err := packed.Space.Verify(t.Context(), m); err != nil || r.Blobs != len(m.Pieces()) {
		t.Errorf("%+v, %v", r, err)
	}
	if !strings.Contains(strings.Join(inner.Names(), "\n"), ".zst") {
		t.Error("nothing was compressed")
	}
}

// Damage anywhere in a compressed blob is refused or, in what zstd leaves open, changes a digest that the reader checks;
// the writer that finds a cut one writes it again.
func TestDamaged(t *testing.T) {
	body := floats(300_000, 4)
	name := blobName(body)
	for what, damage := range map[string]func(b []byte) []byte{
		"flip in the magic":  func(b []byte) []byte { b[2] ^= 1; return b },
		"another stride":     func(b []byte) []byte { b[16] = 2; return b },
		"no stride":          func(b []byte) []byte { b[16] = 0; return b },
		"larger":             func(b []byte) []byte { b[19]++; return b },
		"huge":               func(b []byte) []byte { b[23] = 0x7f; return b },
		"block says more":    func(b []byte) []byte { b[36]++; return b },
		"flip in a block":    func(b []byte) []byte { b[1000] ^= 1; return b },
		"flip at the end":    func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"cut to nothing":     func(b []byte) []byte { return nil },
		"cut in the header":  func(b []byte) []byte { return b[:20] },
		"cut in a block":     func(b []byte) []byte { return b[:len(b)/2] },
		"cut by one":         func(b []byte) []byte { return b[:len(b)-1] },
		"longer":             func(b []byte) []byte { return append(b, 0) },
		"plain in its place": func([]byte) []byte { return body },
	} {
		inner := cachetest.NewMemory()
		s := open(t, inner, true)
		put(t, s, name, body, cache.IfAbsent)
		b, ok := inner.Bytes(name + ".zst")
		if !ok {
			t.Fatal("it is not compressed")
		}
		inner.SetBytes(name+".zst", damage(bytes.Clone(b)))
		got, err := get(t, s, name, 0, -1)
		switch {
		case err == nil && (len(got) != len(body) || bytes.Equal(got, body)):
			t.Errorf("%s: %d bytes came back without an error", what, len(got))
		case err != nil && (!errors.Is(err, cache.ErrCorrupt) || !strings.Contains(err.Error(), name)):
			t.Errorf("%s: %v", what, err)
		}
		o, err := s.Stat(t.Context(), name)
		if err != nil || len(damage(bytes.Clone(b))) != len(b) && o.Size == int64(len(body)) {
			t.Errorf("%s: Stat says %d, %v", what, o.Size, err)
		}
		put(t, s, name, body, cache.Replace)
		if got, err := get(t, s, name, 0, -1); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: written again: %v", what, err)
		}
	}
	inner := cachetest.NewMemory()
	inner.SetBytes(name+".zst", append([]byte("lector planes 2\n"), make([]byte, 40)...))
	if _, err := get(t, open(t, inner, false), name, 0, -1); !errors.Is(err, cache.ErrIncompatible) {
		t.Errorf("a newer form: %v", err)
	}
}

// What is given up in the middle leaves the object that was there.
func TestReplaceCrashes(t *testing.T) {
	body := make([]byte, 4000)
	name := blobName(body)
	for after := range 3 {
		inner := cachetest.NewMemory()
		inner.SetBytes(name, body[:10]) // a cut plain one
		crash := cachetest.NewCrash(inner, after)
		err := open(t, crash, true).Put(t.Context(), name, bytes.NewReader(body), int64(len(body)), cache.Replace)
		if (err == nil) != (after > 1) {
			t.Errorf("after %d effects: %v", after, err)
		}
		space := &cache.Space{Store: open(t, inner, true), Tenant: "t"}
		if o, err := space.Store.Stat(t.Context(), name); err != nil || (o.Size == int64(len(body))) != (after > 1) {
			t.Errorf("after %d effects it has %d bytes, %v", after, o.Size, err)
		}
	}
}

// Whatever the bytes of a compressed object, reading gives an error of a kind or as many bytes as it says, and takes no
// more memory than blocks.
func FuzzRead(f *testing.F) {
	inner := cachetest.NewMemory()
	s, err := compress.New(inner, true)
	if err != nil {
		f.Fatal(err)
	}
	for _, body := range [][]byte{floats(3000, 5), make([]byte, 100), bytes.Repeat([]byte("0123456789abc"), 90_000)} {
		name := blobName(body)
		put(f, s, name, body, cache.IfAbsent)
		b, ok := inner.Bytes(name + ".zst")
		if !ok {
			f.Fatalf("%d bytes are not compressed", len(body))
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(append(bytes.Clone(b), 1))
		b[17] ^= 0xff
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		inner, name := cachetest.NewMemory(), blobName(nil)
		inner.SetBytes(name+".zst", b)
		s := open(t, inner, false)
		got, err := get(t, s, name, 0, -1)
		if err != nil && !errors.Is(err, cache.ErrCorrupt) && !errors.Is(err, cache.ErrIncompatible) {
			t.Fatalf("error of no kind: %v", err)
		}
		o, serr := s.Stat(t.Context(), name)
		if err == nil && serr == nil && o.Size != 0 && o.Size != int64(len(got)) {
			t.Fatalf("%d bytes, and Stat says %d", len(got), o.Size)
		}
	})
}

// What is put comes back, whatever it is.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("x"))
	f.Add(floats(500, 6))
	f.Add(make([]byte, 77))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return
		}
		s := open(t, cachetest.NewMemory(), true)
		put(t, s, blobName(body), body, cache.IfAbsent)
		if got, err := get(t, s, blobName(body), 0, -1); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes came back as %d, %v", len(body), len(got), err)
		}
	})
}

func BenchmarkPut(b *testing.B) {
	s := open(b, cachetest.NewMemory(), true)
	body := floats(1<<20, 7)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		put(b, s, blobName(body), body, cache.Replace)
	}
	size, _, err := s.Stored(b.Context(), blobName(body))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(size)/float64(len(body)), "ratio")
}

func BenchmarkGet(b *testing.B) {
	s := open(b, cachetest.NewMemory(), true)
	body := floats(1<<20, 7)
	put(b, s, blobName(body), body, cache.IfAbsent)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := get(b, s, blobName(body), 0, -1); err != nil {
			b.Fatal(err)
		}
	}
}
