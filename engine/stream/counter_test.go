package stream_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"lector/engine/stream"
)

func TestCounterWakesWhoeverWaits(t *testing.T) {
	var c stream.Counter
	var wg sync.WaitGroup
	for v := range uint64(20) {
		wg.Go(func() {
			if err := c.Wait(context.Background(), v); err != nil || c.Value() < v {
				t.Errorf("waiting for %d: %v at %d", v, err, c.Value())
			}
		})
	}
	for _, v := range []uint64{3, 2, 10, 19, 1} {
		c.Signal(v)
	}
	wg.Wait()
	if c.Value() != 19 {
		t.Errorf("at %d, want 19", c.Value())
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if err := c.Wait(ctx, 20); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	if err := c.Wait(ctx, 19); err != nil {
		t.Errorf("reached: %v", err)
	}
}

func TestMemoryLiesOnPages(t *testing.T) {
	slots, err := stream.Memory(3, 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer slots.Free()
	for i, mem := range slots.Mem {
		if at := uintptr(unsafe.Pointer(&mem[0])); len(mem) != 5000 || at%stream.PageBytes != 0 {
			t.Errorf("slot %d has %d bytes at %x", i, len(mem), at)
		}
		for j := range mem {
			mem[j] = byte(i + 1)
		}
	}
	for i, mem := range slots.Mem {
		for j, v := range mem {
			if v != byte(i+1) {
				t.Fatalf("byte %d of slot %d is another's", j, i)
			}
		}
	}
	slots.Release(1)
	slots.Mem[1][0] = 1
	if slots.Mem[0][0] != 1 || slots.Mem[2][0] != 3 {
		t.Error("releasing a slot touched another")
	}
	if _, err := stream.Memory(1<<40, 1<<40); err == nil {
		t.Error("a size without end is taken")
	}
}

// Direct or not, aligned or not: the same bytes.
func TestFileReadsTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	want := make([]byte, 3*stream.PageBytes+100)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := stream.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := stream.Memory(1, 4*stream.PageBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free()
	for _, c := range []struct{ off, from, n int }{
		{0, 0, stream.PageBytes}, {stream.PageBytes, 0, 2 * stream.PageBytes}, {17, 0, 1000}, {0, 3, 5000}, {2 * stream.PageBytes, 0, 4096}, {3 * stream.PageBytes, 0, 100},
	} {
		p := mem.Mem[0][c.from : c.from+c.n]
		clear(p)
		if n, err := f.ReadAt(p, int64(c.off)); n != c.n || err != nil {
			t.Errorf("%+v (direct %v): %d bytes, %v", c, f.Direct(), n, err)
		}
		for i, v := range p {
			if v != want[c.off+i] {
				t.Fatalf("%+v: byte %d is wrong", c, i)
			}
		}
	}
	if _, err := stream.OpenFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
