package spool_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/spool"
)

func open(t *testing.T, opt spool.Options) *spool.Spool {
	t.Helper()
	if opt.Folder == "" {
		opt.Folder = filepath.Join(t.TempDir(), "spool")
	}
	if opt.Store == nil {
		opt.Store = cachetest.NewMemory()
	}
	s, err := spool.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if now := s.Stats(); now.Bytes != 0 || now.Waiting != 0 {
			t.Errorf("at the end the spool holds %+v", now)
		}
	})
	return s
}

func TestStager(t *testing.T) {
	cachetest.RunStager(t, func(t *testing.T) (cache.Stager, cache.Store) {
		store := cachetest.NewMemory()
		return open(t, spool.Options{Quota: 8 << 20, Store: store}), store
	})
}

// A private spool stages as any other; what lies on the disk is not what was staged, and no two files are alike.
func TestPrivate(t *testing.T) {
	cachetest.RunStager(t, func(t *testing.T) (cache.Stager, cache.Store) {
		store := cachetest.NewMemory()
		return open(t, spool.Options{Quota: 8 << 20, Store: store, Private: true}), store
	})
	folder := t.TempDir()
	s := open(t, spool.Options{Folder: folder, Quota: 8 << 20, Private: true, Store: readsFrom{cachetest.NewMemory(), 100_003}})
	body := bytes.Repeat([]byte("the same text "), 20_000)
	batch, err := s.Stage(t.Context(), []int64{int64(len(body)), int64(len(body))})
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Close()
	var files [][]byte
	for range 2 {
		staged, err := batch.Add(t.Context(), bytes.NewReader(body), int64(len(body)))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(batch.Sync(t.Context()), staged.Put(t.Context(), "t/x", cache.Replace)); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("same")) {
			t.Errorf("%s can be read", e.Name())
		}
		files = append(files, b)
	}
	if len(files) != 3 || bytes.Equal(files[0], files[1]) || bytes.Equal(files[1], files[2]) {
		t.Errorf("%d files, or equal ones", len(files))
	}
}

// readsFrom is a store that reads a body from somewhere inside before it takes it, as one does that tries again.
type readsFrom struct {
	cache.Store
	at int64
}

func (r readsFrom) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	whole, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if _, err := body.Seek(r.at, io.SeekStart); err != nil {
		return err
	}
	rest, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if !bytes.Equal(rest, whole[r.at:]) {
		return errors.New("a part reads as other bytes than the whole")
	}
	if !bytes.HasPrefix(whole, []byte("the same text")) {
		return errors.New("the body is not what was staged")
	}
	return r.Store.Put(ctx, name, body, size, how)
}

// onDisk is what the files of a folder take, in real blocks.
func onDisk(t *testing.T, folder string) (total int64) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		total += info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	return total
}

// However many batches of whatever sizes are open at once, the files never take more than the quota.
func TestNeverExceedsQuota(t *testing.T) {
	const quota = 300 << 10
	folder := t.TempDir()
	store := cachetest.NewMemory()
	s := open(t, spool.Options{Folder: folder, Quota: quota, Store: store})
	rng := rand.New(rand.NewPCG(1, 2))
	var wg sync.WaitGroup
	var mu sync.Mutex
	most := int64(0)
	for range 40 {
		sizes := make([]int64, 1+rng.IntN(4))
		for i := range sizes {
			sizes[i] = 1 + rng.Int64N(40<<10)
		}
		wg.Go(func() {
			batch, err := s.Stage(t.Context(), sizes)
			if err != nil {
				t.Error(err)
				return
			}
			for _, n := range sizes {
				staged, err := batch.Add(t.Context(), bytes.NewReader(make([]byte, n)), n)
				if err != nil {
					t.Error(err)
					continue
				}
				taken := onDisk(t, folder)
				mu.Lock()
				most = max(most, taken)
				mu.Unlock()
				if err := errors.Join(batch.Sync(t.Context()), staged.Put(t.Context(), "t/x", cache.Replace)); err != nil {
					t.Error(err)
				}
			}
			if err := batch.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most > quota || most == 0 {
		t.Errorf("the files took %d bytes, the quota is %d", most, quota)
	}
	if left := onDisk(t, folder); left != 0 {
		t.Errorf("%d bytes are left", left)
	}
}

// A batch waits while others hold the room, in the order of asking, and its context ends that.
func TestWaitsForRoom(t *testing.T) {
	s := open(t, spool.Options{Quota: 64 << 10})
	first, err := s.Stage(t.Context(), []int64{40 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := s.Stage(ctx, []int64{40 << 10})
		gaveUp <- err
	}()
	waitFor(t, func() bool { return s.Stats().Waiting == 1 })
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("a batch that waits for room: %v, want the context's error", err)
	}
	got := make(chan cache.Batch)
	go func() {
		b, err := s.Stage(t.Context(), []int64{40 << 10})
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	waitFor(t, func() bool { return s.Stats().Waiting == 1 })
	select {
	case <-got:
		t.Error("a batch got room that another holds")
	default:
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (<-got).Close(); err != nil {
		t.Fatal(err)
	}
	if s.Stats().Waited <= 0 {
		t.Error("the wait was not counted")
	}
}

func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	for !so() {
		if t.Context().Err() != nil {
			t.Fatal("it never came so")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestRefusals(t *testing.T) {
	s := open(t, spool.Options{Quota: 64 << 10})
	if _, err := s.Stage(t.Context(), []int64{64 << 10}); !errors.Is(err, cache.ErrRoom) || !strings.Contains(err.Error(), "65536") {
		t.Errorf("a chunk that can never fit: %v", err)
	}
	folder := t.TempDir()
	first := open(t, spool.Options{Folder: folder, Quota: 1 << 20})
	_ = first
	if _, err := spool.Open(spool.Options{Folder: folder, Quota: 1 << 20, Store: cachetest.NewMemory()}); !errors.Is(err, spool.ErrOwned) {
		t.Errorf("a second owner: %v", err)
	}
	if _, err := spool.Open(spool.Options{Folder: t.TempDir(), Quota: 1, Store: cachetest.NewMemory()}); err == nil {
		t.Error("a quota of one byte was taken")
	}
	if _, err := spool.Open(spool.Options{Quota: 1 << 20}); err == nil {
		t.Error("a spool without a folder was opened")
	}
	other := t.TempDir()
	if err := os.Mkdir(filepath.Join(other, "photos"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := spool.Open(spool.Options{Folder: other, Quota: 1 << 20, Store: cachetest.NewMemory()}); err == nil {
		t.Error("a folder with other things was taken")
	}
}

// What a dead owner has left goes when the next one comes, and the lock of the dead one holds nobody up.
func TestLeftovers(t *testing.T) {
	folder := t.TempDir()
	dead, err := spool.Open(spool.Options{Folder: folder, Quota: 1 << 20, Store: cachetest.NewMemory()})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := dead.Stage(t.Context(), []int64{5})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := batch.Add(t.Context(), strings.NewReader("whole"), 5); err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil { // as the end of a process does; the batch stays
		t.Fatal(err)
	}
	if onDisk(t, folder) == 0 {
		t.Fatal("nothing was left")
	}
	s := open(t, spool.Options{Folder: folder, Quota: 1 << 20})
	if n := onDisk(t, folder); n != 0 || s.Stats().Bytes != 0 {
		t.Errorf("%d bytes are left, %+v", n, s.Stats())
	}
}

// A write that fails half-way leaves room taken until the batch is closed, and no file after that.
func TestFailedAdd(t *testing.T) {
	folder := t.TempDir()
	s := open(t, spool.Options{Folder: folder, Quota: 4 << 20})
	batch, err := s.Stage(t.Context(), []int64{2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken body")
	if _, err := batch.Add(t.Context(), &failing{left: 1 << 20, err: broken}, 2<<20); !errors.Is(err, broken) {
		t.Errorf("Add: %v", err)
	}
	if taken := onDisk(t, folder); taken > s.Stats().Bytes {
		t.Errorf("%d bytes are on the disk, %d are counted", taken, s.Stats().Bytes)
	}
	if err := batch.Close(); err != nil {
		t.Fatal(err)
	}
	if onDisk(t, folder) != 0 {
		t.Error("a half-written file is left")
	}
}

// failing gives some zeros, then an error.
type failing struct {
	left int
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, f.err
	}
	n := min(len(p), f.left)
	f.left -= n
	return n, nil
}

func (f *failing) Seek(int64, int) (int64, error) { return 0, nil }

var _ io.ReadSeeker = (*failing)(nil)
