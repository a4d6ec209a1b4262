package local_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/disk"
	"lector/cache/local"
)

const plenty = 64 << 20

func open(t testing.TB, folder string, quota int64, far cache.Store) *local.Store {
	t.Helper()
	s, err := local.Open(local.Options{Folder: folder, Quota: quota, Store: far})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// blob is the i-th blob of that many bytes, and its name.
func blob(i, size int) (name string, body []byte) {
	body = make([]byte, size)
	rng := rand.New(rand.NewPCG(uint64(i), 7))
	for j := range body {
		body[j] = byte(rng.Uint32())
	}
	return "t/blobs/" + cache.Sum(body).String(), body
}

func put(t testing.TB, s cache.Store, name string, body []byte) {
	t.Helper()
	if err := s.Put(context.Background(), name, strings.NewReader(string(body)), int64(len(body)), cache.IfAbsent); err != nil && !errors.Is(err, cache.ErrExists) {
		t.Fatal(err)
	}
}

func get(t testing.TB, s cache.Store, name string) []byte {
	t.Helper()
	r, err := s.Get(context.Background(), name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStore(t *testing.T) {
	cachetest.Run(t, func(t *testing.T) cache.Store { return open(t, t.TempDir(), plenty, cachetest.NewMemory()) })
}

// With room for hardly anything, it is still a store.
func TestStoreWithoutRoom(t *testing.T) {
	cachetest.Run(t, func(t *testing.T) cache.Store { return open(t, t.TempDir(), 9000, cachetest.NewMemory()) })
}

// What was stored or read once is read again without the store, in whole and in part, by another process, too.
func TestReadsNear(t *testing.T) {
	folder, far := t.TempDir(), cachetest.NewMemory()
	stored, bodyA := blob(1, 300_000)
	read, bodyB := blob(2, 200_000)
	put(t, far, read, bodyB)
	first := open(t, folder, plenty, far)
	put(t, first, stored, bodyA)
	if !slices.Equal(get(t, first, read), bodyB) {
		t.Error("a blob came from the store as others")
	}
	silent := cachetest.NewFaulty(far, cachetest.Fault{Op: cachetest.Get, Action: cachetest.ErrorBefore})
	second := open(t, folder, plenty, silent)
	if !slices.Equal(get(t, second, stored), bodyA) || !slices.Equal(get(t, second, read), bodyB) {
		t.Error("a copy came as other bytes")
	}
	r, err := second.Get(t.Context(), read, 1000, 50)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if part, err := io.ReadAll(r); err != nil || !slices.Equal(part, bodyB[1000:1050]) {
		t.Errorf("a part: %v, %v", part, err)
	}
	if got := second.Stats(); got != (local.Stats{Hits: 3}) {
		t.Errorf("the second counts %+v", got)
	}
	if got := first.Stats(); got != (local.Stats{Misses: 1, Kept: 2}) {
		t.Errorf("the first counts %+v", got)
	}
}

// Descriptions are never copied: they are asked for where they stand.
func TestKeepsBlobsAlone(t *testing.T) {
	folder, far := t.TempDir(), cachetest.NewMemory()
	s := open(t, folder, plenty, far)
	for _, kind := range []string{"nodes", "manifests", "handles", "documents", "tags"} {
		put(t, s, "t/"+kind+"/x", []byte(kind))
	}
	put(t, s, "t/sealed/key/blobs/x", []byte("sealed"))
	for _, name := range far.Names() {
		far.SetBytes(name, []byte("changed"))
		want := "changed"
		if strings.Contains(name, "/blobs/") {
			want = "sealed"
		}
		if got := get(t, s, name); string(got) != want {
			t.Errorf("%s reads %q, want %q", name, got, want)
		}
	}
}

// copies lists the files of copies.
func copies(t *testing.T, folder string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			out = append(out, filepath.Join(folder, e.Name()))
		}
	}
	return out
}

// Any damage to a copy is found before a byte is passed on; the store answers, and the copy is made again.
func TestDamagedCopy(t *testing.T) {
	for what, damage := range map[string]func(b []byte) []byte{
		"flip at the start":  func(b []byte) []byte { b[0] ^= 1; return b },
		"flip at the end":    func(b []byte) []byte { b[len(b)-17] ^= 0x80; return b },
		"flip in the sum":    func(b []byte) []byte { b[len(b)-16] ^= 1; return b },
		"flip in the size":   func(b []byte) []byte { b[len(b)-12] ^= 1; return b },
		"flip in the mark":   func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"cut":                func(b []byte) []byte { return b[:len(b)-1] },
		"cut to less":        func(b []byte) []byte { return b[:5] },
		"empty":              func([]byte) []byte { return nil },
		"longer":             func(b []byte) []byte { return append(b, 0) },
		"zeros, as by power": func(b []byte) []byte { return make([]byte, len(b)) },
	} {
		folder, far := t.TempDir(), cachetest.NewMemory()
		s := open(t, folder, plenty, far)
		name, body := blob(1, 100_000)
		put(t, s, name, body)
		file := copies(t, folder)[0]
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, damage(b), 0o600); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(get(t, s, name), body) {
			t.Errorf("%s: other bytes came", what)
		}
		if got := s.Stats(); got.Damaged != 1 || got.Misses != 1 || got.Kept != 2 {
			t.Errorf("%s: counts %+v", what, got)
		}
		if !slices.Equal(get(t, s, name), body) || s.Stats().Hits != 1 {
			t.Errorf("%s: the copy was not made again", what)
		}
	}
}

// What the store gives that is not what its name says is passed on to whoever checks it, and not kept; neither is
// what was not read to its end, or ended early.
func TestKeepsOnlyWholeBlobs(t *testing.T) {
	far := cachetest.NewMemory()
	name, body := blob(1, 50_000)
	put(t, far, name, body)
	for what, rule := range map[string]cachetest.Fault{
		"damaged": {Op: cachetest.Get, Action: cachetest.FlipByte},
		"cut":     {Op: cachetest.Get, Action: cachetest.Truncate},
	} {
		folder := t.TempDir()
		s := open(t, folder, plenty, cachetest.NewFaulty(far, rule))
		if slices.Equal(get(t, s, name), body) {
			t.Fatalf("%s: the fault did not happen", what)
		}
		if left := copies(t, folder); len(left) != 0 || s.Stats().Kept != 0 {
			t.Errorf("%s: kept %v", what, left)
		}
	}
	folder := t.TempDir()
	s := open(t, folder, plenty, far)
	r, err := s.Get(t.Context(), name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if left := copies(t, folder); len(left) != 0 {
		t.Errorf("half-read: kept %v", left)
	}
}

// Replacing and deleting an object leaves no copy of what it was.
func TestFollowsTheStore(t *testing.T) {
	far := cachetest.NewMemory()
	s := open(t, t.TempDir(), plenty, far)
	const name = "t/blobs/x"
	put(t, s, name, []byte("first"))
	if err := s.Put(t.Context(), name, strings.NewReader("second"), 6, cache.Replace); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, name); string(got) != "second" {
		t.Errorf("after a replace: %q", got)
	}
	if err := s.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), name, 0, -1); !errors.Is(err, cache.ErrNotFound) {
		t.Errorf("after a delete: %v", err)
	}
}

// The copies that were used least recently go first.
func TestEviction(t *testing.T) {
	folder, far := t.TempDir(), cachetest.NewMemory()
	block, err := disk.BlockSize(folder)
	if err != nil {
		t.Fatal(err)
	}
	const size = 100_000
	s := open(t, folder, 3*disk.Room(size+16, block), far)
	names := make([]string, 5)
	for i := range names {
		var body []byte
		names[i], body = blob(i, size)
		put(t, s, names[i], body)
		if i == 2 { // three fit: the first is used again
			age(t, folder)
			get(t, s, names[0])
		}
	}
	far.Delete(t.Context(), names[0]) // what is not near is found out now
	for _, n := range names[1:3] {
		far.Delete(t.Context(), n)
	}
	if hits := s.Stats().Hits; len(get(t, s, names[0])) != size || s.Stats().Hits != hits+1 {
		t.Error("the copy that was used again is gone")
	}
	for i, n := range names[1:3] {
		if _, err := s.Get(t.Context(), n, 0, -1); !errors.Is(err, cache.ErrNotFound) {
			t.Errorf("copy %d, which was used least recently: %v", i+1, err)
		}
	}
	if n := len(copies(t, folder)); n != 3 {
		t.Errorf("%d copies are kept", n)
	}
	open(t, folder, disk.Room(size+16, block), far) // a smaller quota holds at once
	if n := len(copies(t, folder)); n != 1 {
		t.Errorf("under a smaller quota %d copies are kept", n)
	}
}

// age makes every copy look unused for an hour, each a second longer than the one before by name.
func age(t *testing.T, folder string) {
	t.Helper()
	for i, c := range copies(t, folder) {
		at := time.Now().Add(-time.Hour - time.Duration(i)*time.Second)
		if err := os.Chtimes(c, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// A folder that cannot be used is as good as none.
func TestBrokenFolder(t *testing.T) {
	folder, far := filepath.Join(t.TempDir(), "copies"), cachetest.NewMemory()
	s := open(t, folder, plenty, far)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	name, body := blob(1, 1000)
	put(t, s, name, body)
	if !slices.Equal(get(t, s, name), body) || s.Stats().Failed == 0 {
		t.Errorf("counts %+v", s.Stats())
	}
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, opt := range map[string]local.Options{
		"no folder": {Quota: plenty, Store: cachetest.NewMemory()},
		"no store":  {Quota: plenty, Folder: t.TempDir()},
		"no quota":  {Folder: t.TempDir(), Store: cachetest.NewMemory()},
		"a file":    {Quota: plenty, Folder: file, Store: cachetest.NewMemory()},
	} {
		if _, err := local.Open(opt); err == nil {
			t.Errorf("%s: opened", what)
		}
	}
}

// taken is what the files of a folder take, in real blocks, while nobody changes which there are: names may be taken
// again between two looks otherwise.
func taken(folder string) (total int64, err error) {
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	if err := disk.Lock(lock, true); err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		if info, ierr := e.Info(); ierr == nil {
			total += disk.Allocated(info)
		}
	}
	return total, err
}
