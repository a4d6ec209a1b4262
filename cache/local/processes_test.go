package local_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lector/cache/cachetest"
	"lector/cache/disk"
	"lector/cache/local"
)

// The environment of the test's own program as a child: where the copies lie, how many bytes, and which blobs.
const childEnv = "LECTOR_LOCAL_CHILD"

const (
	childQuota = 1 << 20
	childBlobs = 60
)

func TestMain(m *testing.M) {
	if args := os.Getenv(childEnv); args != "" {
		if err := child(args); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child reads blobs through copies that other processes use, in an order of its own, and holds every one against what
// it must be. With the seed 0 it takes room for a copy, says so, and never ends.
func child(args string) error {
	text, folder, _ := strings.Cut(args, ":")
	seed, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	far := cachetest.NewMemory()
	for i := range childBlobs {
		name, body := blob(i, 1+i*1500)
		far.SetBytes(name, body)
	}
	s, err := local.Open(local.Options{Folder: folder, Quota: childQuota, Store: far})
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 3))
	for range 300 {
		i := rng.IntN(childBlobs)
		if seed == 0 {
			i = childBlobs - 1
		}
		name, body := blob(i, 1+i*1500)
		r, err := s.Get(context.Background(), name, 0, -1)
		if err != nil {
			return err
		}
		if seed == 0 {
			fmt.Println("reading")
			select {}
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		if !slices.Equal(got, body) {
			return fmt.Errorf("blob %d came as other bytes", i)
		}
	}
	st := s.Stats()
	fmt.Printf("hits %d misses %d damaged %d failed %d\n", st.Hits, st.Misses, st.Damaged, st.Failed)
	return nil
}

func startChild(t *testing.T, folder string, seed int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+strconv.Itoa(seed)+":"+folder)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	return c, bufio.NewScanner(out)
}

// Two processes share copies: each gets the right bytes, uses what the other has made, and together they never take
// more than the quota.
func TestProcesses(t *testing.T) {
	folder := t.TempDir()
	var wg sync.WaitGroup
	done := make(chan struct{})
	most := int64(0)
	wg.Go(func() {
		for {
			n, err := taken(folder)
			if err != nil {
				t.Error(err)
			}
			most = max(most, n)
			select {
			case <-done:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
	})
	var outs []*bufio.Scanner
	for seed := 1; seed <= 2; seed++ {
		_, out := startChild(t, folder, seed)
		outs = append(outs, out)
	}
	hits := 0
	for _, out := range outs {
		var h, misses, damaged, failed int
		if !out.Scan() {
			t.Error("a process ended without a word")
		} else if _, err := fmt.Sscanf(out.Text(), "hits %d misses %d damaged %d failed %d", &h, &misses, &damaged, &failed); err != nil || damaged+failed > 0 {
			t.Errorf("a process says %q", out.Text())
		}
		hits += h
	}
	close(done)
	wg.Wait()
	if most > childQuota || most < childQuota/2 || hits == 0 {
		t.Errorf("the files took %d bytes of %d, %d hits", most, childQuota, hits)
	}
}

// A copy gets its name while nobody looks for room, who would find it under neither of its names.
func TestNamedUnderTheLock(t *testing.T) {
	folder, far := t.TempDir(), cachetest.NewMemory()
	name, body := blob(1, 5000)
	put(t, open(t, t.TempDir(), plenty, far), name, body)
	r, err := open(t, folder, plenty, far).Get(context.Background(), name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Lock(lock, true); err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, r)
		read <- errors.Join(err, r.Close())
	}()
	select {
	case err := <-read:
		t.Errorf("the copy was kept while the lock was held: %v", err)
		lock.Close()
		return
	case <-time.After(50 * time.Millisecond):
	}
	if left := copies(t, folder); len(left) != 1 || !strings.HasSuffix(left[0], ".part") {
		t.Errorf("while the lock is held: %v", left)
	}
	lock.Close()
	if err := <-read; err != nil {
		t.Error(err)
	}
	if left := copies(t, folder); len(left) != 1 || strings.HasSuffix(left[0], ".part") {
		t.Errorf("behind the lock: %v", left)
	}
}

// A process that dies while it writes a copy leaves a file that takes no room from the next one who needs it.
func TestKilledWriter(t *testing.T) {
	folder := t.TempDir()
	c, out := startChild(t, folder, 0)
	if !out.Scan() || out.Text() != "reading" {
		t.Fatalf("the process says %q", out.Text())
	}
	s := open(t, folder, childQuota, cachetest.NewMemory())
	if left := copies(t, folder); len(left) != 1 || !strings.HasSuffix(left[0], ".part") {
		t.Fatalf("while it writes: %v", left)
	}
	c.Process.Kill()
	c.Wait()
	name, body := blob(1, 1000)
	put(t, s, name, body)
	if left := copies(t, folder); len(left) != 1 || strings.HasSuffix(left[0], ".part") {
		t.Errorf("after its death: %v", left)
	}
}
