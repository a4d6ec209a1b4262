package archive_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"lector/cache"
	"lector/cache/archive"
	"lector/cache/cachetest"
	"lector/cache/dir"
)

// stored is a document of 20 tokens in a new store, and its handle.
func stored(t testing.TB) (*cachetest.Document, cache.Digest) {
	t.Helper()
	d := &cachetest.Document{Space: &cache.Space{Store: cachetest.NewMemory()}, Tokens: cachetest.Count(100, 20)}
	h, _, err := d.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d, h
}

// memory is a file in memory.
type memory struct {
	mu sync.Mutex
	b  []byte
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

func exported(t testing.TB) (*cachetest.Document, cache.Digest, []byte) {
	t.Helper()
	d, h := stored(t)
	var f memory
	size, err := archive.WriteFile(t.Context(), d.Space, h, &f)
	if err != nil || size != int64(len(f.b)) {
		t.Fatalf("WriteFile: %d bytes of %d, %v", len(f.b), size, err)
	}
	return d, h, f.b
}

// load takes the bytes of a file into a new space.
func load(t testing.TB, b []byte, to *cache.Space) (archive.Carried, error) {
	from, d, err := archive.ReadFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return archive.Carried{}, err
	}
	return archive.Copy(t.Context(), from, to, d)
}

// A reader that knows safetensors and nothing of lector finds every region under its name, with its shape and bytes.
func TestFileIsSafetensors(t *testing.T) {
	d, _, b := exported(t)
	n := binary.LittleEndian.Uint64(b)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	var about map[string]string
	if err := json.Unmarshal(header["__metadata__"], &about); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	data := b[8+n:]
	at := 0
	for _, want := range cachetest.State(d.Tokens) {
		var got struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(header[want.Name], &got); err != nil {
			t.Fatal(err)
		}
		shape := want.Shape
		if want.Kind == cache.Rows {
			shape = append([]int{len(d.Tokens) - want.Lag}, shape...)
		}
		if got.DType != strings.ToUpper(want.DType) || !slices.Equal(got.Shape, shape) || got.Offsets[0] != at {
			t.Errorf("%s: %+v, want %v at %d", want.Name, got, shape, at)
		}
		if !bytes.Equal(data[got.Offsets[0]:got.Offsets[1]], want.Data) {
			t.Errorf("%s: other bytes", want.Name)
		}
		at = got.Offsets[1]
		delete(header, want.Name)
	}
	if at != len(data) || len(header) != 0 || n%8 != 0 {
		t.Errorf("%d of %d bytes, %d more tensors, header of %d", at, len(data), len(header), n)
	}
}

func TestRoundTrip(t *testing.T) {
	d, h, b := exported(t)
	to := &cache.Space{Store: cachetest.NewMemory()}
	for range 2 {
		c, err := load(t, b, to)
		if err != nil || c.Handle != h || c.Tokens != 20 {
			t.Fatalf("%+v, %v", c, err)
		}
		if err := cachetest.Check(t.Context(), to, c.Handle, d.Tokens); err != nil {
			t.Error(err)
		}
	}
	for _, name := range to.Store.(*cachetest.Memory).Names() {
		if strings.Contains(name, "/nodes/") || strings.Contains(name, "/keep/") {
			t.Errorf("a file brought %s", name)
		}
	}
	other := &cache.Space{Store: to.Store, Tenant: "acme"}
	c, err := load(t, b, other)
	if err != nil || c.Handle == h {
		t.Fatalf("into another tenant: %+v, %v", c, err)
	}
	if err := cachetest.Check(t.Context(), other, c.Handle, d.Tokens); err != nil {
		t.Error(err)
	}
}

// The folder form is a store: it can be resumed from as it lies there, and taken in elsewhere.
func TestFolder(t *testing.T) {
	d, h := stored(t)
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	folder := &cache.Space{Store: store}
	vouched := "default/signatures/" + h.String() + "/key"
	d.Space.Store.(*cachetest.Memory).SetBytes(vouched, []byte("signature"))
	if c, err := archive.Copy(t.Context(), d.Space, folder, h); err != nil || c.Handle != h {
		t.Fatalf("%+v, %v", c, err)
	}
	if err := cachetest.Check(t.Context(), folder, h, d.Tokens); err != nil {
		t.Error(err)
	}
	into := cachetest.NewMemory()
	to := &cache.Space{Store: into}
	if _, err := archive.Copy(t.Context(), folder, to, h); err != nil {
		t.Fatal(err)
	}
	if b, _ := into.Bytes(vouched); string(b) != "signature" {
		t.Errorf("the signature arrived as %q", b)
	}
	if err := cachetest.Check(t.Context(), to, h, d.Tokens); err != nil {
		t.Error(err)
	}
}

// Every byte counts: with any one of them changed, or any number of them missing at the end, nothing is taken in.
func TestDamage(t *testing.T) {
	_, _, b := exported(t)
	refused := func(what string, b []byte) {
		t.Helper()
		to := cachetest.NewMemory()
		_, err := load(t, b, &cache.Space{Store: to})
		if !errors.Is(err, cache.ErrCorrupt) && !errors.Is(err, cache.ErrIncompatible) {
			t.Errorf("%s: %v", what, err)
		}
		if names := to.Names(); len(names) != 0 {
			t.Errorf("%s: stored %v", what, names)
		}
	}
	for i := range b {
		b[i] ^= 1
		refused("a byte changed", b)
		b[i] ^= 1
	}
	for n := 0; n < len(b); n += 97 {
		refused("cut", b[:n])
	}
	refused("longer", append(slices.Clone(b), 0))
	huge := slices.Clone(b)
	binary.LittleEndian.PutUint64(huge, 1<<63)
	refused("huge header", huge)
}

// What is said of a damaged file names what is damaged in it, and what helps: nothing of it can be deleted.
func TestDamagedFileSaysWhatHelps(t *testing.T) {
	_, _, b := exported(t)
	b[len(b)-1] ^= 1
	_, err := load(t, b, &cache.Space{Store: cachetest.NewMemory()})
	if !errors.Is(err, cache.ErrCorrupt) {
		t.Fatal(err)
	}
	for _, want := range []string{"region", "token", "is damaged", "export the snapshot again"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "delete") {
		t.Errorf("a part of a file cannot be deleted: %v", err)
	}
}

// A damaged source gives no file and no copy, and the error names the blob.
func TestDamagedSource(t *testing.T) {
	d, h := stored(t)
	store := d.Space.Store.(*cachetest.Memory)
	for _, name := range store.Names() {
		if !strings.Contains(name, "/blobs/") {
			continue
		}
		whole, _ := store.Bytes(name)
		bad := slices.Clone(whole)
		bad[len(bad)/2] ^= 4
		store.SetBytes(name, bad)
		if _, err := archive.WriteFile(t.Context(), d.Space, h, &memory{}); !errors.Is(err, cache.ErrCorrupt) {
			t.Errorf("file: %v", err)
		}
		to := cachetest.NewMemory()
		if _, err := archive.Copy(t.Context(), d.Space, &cache.Space{Store: to}, h); !errors.Is(err, cache.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("copy: %v", err)
		}
		if len(to.Names()) != 0 {
			t.Errorf("a damaged source left %v", to.Names())
		}
		store.SetBytes(name, whole)
	}
}

// A copy that dies between any two effects shows no handle that is not whole, and the next one ends it.
func TestInterruptedCopy(t *testing.T) {
	d, h := stored(t)
	for effects := range 100 {
		to := cachetest.NewMemory()
		_, err := archive.Copy(t.Context(), d.Space, &cache.Space{Store: cachetest.NewCrash(to, effects)}, h)
		if err == nil {
			return
		}
		space := &cache.Space{Store: to}
		for found := range space.Handles(t.Context()) {
			if err := cachetest.Check(t.Context(), space, found.Digest, d.Tokens); err != nil {
				t.Errorf("after %d effects a handle shows: %v", effects, err)
			}
		}
		if _, err := archive.Copy(t.Context(), d.Space, space, h); err != nil {
			t.Errorf("after %d effects: %v", effects, err)
		}
		if err := cachetest.Check(t.Context(), space, h, d.Tokens); err != nil {
			t.Errorf("after %d effects: %v", effects, err)
		}
	}
	t.Error("the copy never ended")
}

// The file as a store answers ranges as any store does.
func TestFileRanges(t *testing.T) {
	_, _, b := exported(t)
	s, d, err := archive.ReadFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Handle(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Manifest(t.Context(), h.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	blob := m.Chunks[1].Rows[0]
	name := "default/blobs/" + blob.Digest.String()
	get := func(off, n int64) ([]byte, error) {
		r, err := s.Store.Get(t.Context(), name, off, n)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	whole, err := get(0, -1)
	if err != nil || cache.Sum(whole) != blob.Digest {
		t.Fatalf("%d bytes, %v", len(whole), err)
	}
	for off := range blob.Size {
		if got, err := get(off, 1); err != nil || got[0] != whole[off] {
			t.Errorf("byte %d: %v, %v", off, got, err)
		}
	}
	var handles []string
	for o, err := range s.Store.List(t.Context(), "default/handles/") {
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, o.Name)
	}
	if len(handles) != 1 || handles[0] != "default/handles/"+d.String() {
		t.Errorf("List: %v", handles)
	}
	if _, err := get(0, blob.Size+1); err == nil {
		t.Error("a range beyond the end was taken")
	}
	if err := s.Store.Delete(t.Context(), name); err == nil {
		t.Error("an object of a file was deleted")
	}
}

// Any bytes are refused with a reason, or a snapshot that can be taken in.
func FuzzReadFile(f *testing.F) {
	_, _, b := exported(f)
	f.Add(b)
	f.Add(b[:100])
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		to := cachetest.NewMemory()
		c, err := load(t, b, &cache.Space{Store: to})
		if err != nil {
			if len(to.Names()) != 0 {
				t.Errorf("refused (%v) and stored %v", err, to.Names())
			}
			return
		}
		if _, err := (&cache.Space{Store: to}).Handle(t.Context(), c.Handle); err != nil {
			t.Error(err)
		}
	})
}
