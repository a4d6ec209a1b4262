package dir_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/dir"
)

func open(t *testing.T, folder string) *dir.Store {
	t.Helper()
	s, err := dir.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t *testing.T, s *dir.Store, name, body string) {
	t.Helper()
	if err := s.Put(t.Context(), name, strings.NewReader(body), int64(len(body)), cache.IfAbsent); err != nil {
		t.Fatal(err)
	}
}

func listed(t *testing.T, s *dir.Store, prefix string) (out []string) {
	t.Helper()
	for o, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o.Name)
	}
	return out
}

// files lists what lies in the folder, by path, with its mode.
func files(t *testing.T, folder string) map[string]fs.FileMode {
	t.Helper()
	out := map[string]fs.FileMode{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		info, err := d.Info()
		rel, rerr := filepath.Rel(folder, path)
		out[filepath.ToSlash(rel)] = info.Mode()
		return errors.Join(err, rerr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStore(t *testing.T) {
	cachetest.Run(t, func(t *testing.T) cache.Store { return open(t, t.TempDir()) })
}

// One that does not wait for the disk is a store like any other.
func TestUnsyncedStore(t *testing.T) {
	cachetest.Run(t, func(t *testing.T) cache.Store {
		s, err := dir.OpenWith(t.TempDir(), dir.Options{Unsynced: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}

var digest = cache.Sum([]byte("x")).String() // 2d71…

// Where an object lies is part of the format of the folder: another lector must find it.
func TestPlacesAndModes(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	root := filepath.Join(t.TempDir(), "made", "here")
	s := open(t, root)
	put(t, s, "t/blobs/"+digest, "x")
	put(t, s, "t/rolling/job/"+digest, "x")
	put(t, s, "t/plain", "x")
	put(t, s, digest, "x")
	got := files(t, root)
	two := digest[:2]
	for _, name := range []string{"t/blobs/" + two + "/" + digest, "t/rolling/job/" + two + "/" + digest, "t/plain", two + "/" + digest} {
		if mode, ok := got[name]; !ok || mode != 0o600 {
			t.Errorf("%s has the mode %v (there: %v)", name, mode, ok)
		}
	}
	for name, mode := range got {
		if mode.IsDir() && mode.Perm() != 0o700 {
			t.Errorf("folder %s has the mode %v", name, mode)
		}
	}
	if len(got) != 4+9 { // 4 objects; tmp~, log~, t, t/blobs, t/blobs/2d, t/rolling, t/rolling/job, t/rolling/job/2d, 2d
		t.Errorf("folder holds %v", got)
	}
	if err := s.Delete(t.Context(), "t/rolling/job/"+digest); err != nil {
		t.Fatal(err)
	}
	if _, ok := files(t, root)["t/rolling"]; ok {
		t.Error("empty folders are left of a deleted object")
	}
}

// A new process finds what an earlier one stored.
func TestReopen(t *testing.T) {
	root := t.TempDir()
	first := open(t, root)
	put(t, first, "t/blobs/"+digest, "x")
	first.Close()
	if got := listed(t, open(t, root), "t/"); !slices.Equal(got, []string{"t/blobs/" + digest}) {
		t.Errorf("lists %v", got)
	}
}

// Half-written files are no objects, and Open removes those that nobody can be writing any more.
func TestLeftovers(t *testing.T) {
	root := t.TempDir()
	open(t, root).Close()
	old, fresh := filepath.Join(root, "tmp~", "OLD"), filepath.Join(root, "tmp~", "FRESH")
	for _, f := range []string{old, fresh} {
		if err := os.WriteFile(f, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hour := time.Now().Add(-time.Hour - time.Minute)
	if err := os.Chtimes(old, hour, hour); err != nil {
		t.Fatal(err)
	}
	s := open(t, root)
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("old leftover: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("fresh leftover: %v", err)
	}
	if got := listed(t, s, ""); len(got) != 0 {
		t.Errorf("lists %v", got)
	}
}

// failing is a body that breaks off.
type failing struct {
	io.ReadSeeker
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.ReadSeeker.Read(p[:min(len(p), 3)])
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

// A put that fails leaves nothing, says what failed, and what to do where there is something.
func TestFailedPutLeavesNothing(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	for err, hint := range map[error]string{syscall.ENOSPC: "free some space", syscall.EROFS: "can be written", syscall.EACCES: "needs to read and write", io.ErrClosedPipe: "closed pipe"} {
		for _, how := range []cache.PutMode{cache.IfAbsent, cache.Replace} {
			got := s.Put(t.Context(), "t/a", failing{strings.NewReader("half"), err}, 8, how)
			if !errors.Is(got, err) || !strings.Contains(got.Error(), hint) || !strings.Contains(got.Error(), "t/a") {
				t.Errorf("%v: %v", err, got)
			}
		}
	}
	if got := files(t, root); len(got) != 2 { // tmp~ and log~
		t.Errorf("folder holds %v", got)
	}
}

// No link leads out, and a link in an object's place is not an object.
func TestLinksAreNotFollowed(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	s := open(t, root)
	put(t, s, "t/inside", "x")
	for from, to := range map[string]string{
		filepath.Join(root, "t", "file"): filepath.Join(outside, "secret"),
		filepath.Join(root, "out"):       outside,
		filepath.Join(root, "t", "near"): "inside",
	} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"t/file", "out/secret", "t/near"} {
		if r, err := s.Get(t.Context(), name, 0, -1); err == nil {
			r.Close()
			t.Errorf("Get(%s) followed a link", name)
		}
		if _, err := s.Stat(t.Context(), name); err == nil {
			t.Errorf("Stat(%s) followed a link", name)
		}
	}
	if err := s.Put(t.Context(), "out/new", strings.NewReader("x"), 1, cache.IfAbsent); err == nil {
		t.Error("a put went out by a link")
	}
	if err := s.Put(t.Context(), "t/file", strings.NewReader("x"), 1, cache.IfAbsent); err == nil {
		t.Error("a put took the place of a link")
	}
	if got := listed(t, s, ""); !slices.Equal(got, []string{"t/inside"}) {
		t.Errorf("lists %v", got)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside holds %v, %v", entries, err)
	}
}

// A folder that cannot be used is refused with its name.
func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{file, filepath.Join(file, "below"), ""} {
		if s, err := dir.Open(folder); err == nil {
			s.Close()
			t.Errorf("Open(%q) succeeded", folder)
		} else if !strings.Contains(err.Error(), folder) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Open(%q): %v", folder, err)
		}
	}
}

// A folder that may not be written is refused with what to do.
func TestClosedFolder(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write every folder: this needs an ordinary user")
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(closed, 0o700)
	if _, err := dir.Open(closed); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "needs to read and write") {
		t.Errorf("Open of a closed folder: %v", err)
	}
}

// child makes this test binary a writer of its own, which TestProcesses and TestKilledWriter start.
var (
	child    = flag.String("child", "", "folder of a store to write to, instead of running tests")
	together = flag.Bool("together", false, "have the child put each object with one that names it, at once")
)

const childObjects = 12

func TestMain(m *testing.M) {
	flag.Parse()
	if *child == "" {
		os.Exit(m.Run())
	}
	if err := writeObjects(*child); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeObjects puts objects until it is done or killed, and prints the names that it won.
func writeObjects(folder string) error {
	s, err := dir.Open(folder)
	if err != nil {
		return err
	}
	for i := range childObjects {
		body := strings.Repeat(fmt.Sprint(i), 20000)
		name := "t/blobs/" + cache.Sum([]byte(body)).String()
		err := writeObject(s, name, body)
		if err == nil {
			fmt.Println("won", name)
		} else if !errors.Is(err, cache.ErrExists) {
			return err
		}
	}
	return s.Close()
}

// namesFolder holds objects that hold the names of others.
const namesFolder = "t/handles/"

func writeObject(s *dir.Store, name, body string) error {
	ctx := context.Background()
	if !*together {
		return s.Put(ctx, name, strings.NewReader(body), int64(len(body)), cache.IfAbsent)
	}
	s.InlineBytes(1000)
	batch, err := s.Stage(ctx, []int64{int64(len(body) + len(name))})
	if err != nil {
		return err
	}
	object, err := batch.Add(ctx, strings.NewReader(body), int64(len(body)))
	if err != nil {
		return err
	}
	handle, err := batch.Add(ctx, strings.NewReader(name), int64(len(name)))
	if err != nil {
		return err
	}
	names := []cache.Naming{{Staged: object, Name: name}, {Staged: handle, Name: namesFolder + path.Base(name)}}
	return errors.Join(batch.Sync(ctx), batch.(cache.Joint).PutAll(ctx, names), batch.Close())
}

// startChild starts a writer, whose lines come from the returned reader.
func startChild(t *testing.T, folder string, more ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(more, "-child="+folder)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// Promise 2: of several processes that put one name, exactly one succeeds.
func TestProcesses(t *testing.T) {
	root := t.TempDir()
	const writers = 3
	var cmds []*exec.Cmd
	var outs []*bufio.Scanner
	for range writers {
		cmd, out := startChild(t, root)
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	won := map[string]int{}
	for i, out := range outs {
		for out.Scan() {
			if name, ok := strings.CutPrefix(out.Text(), "won "); ok {
				won[name]++
			}
		}
		if err := cmds[i].Wait(); err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	if len(won) != childObjects {
		t.Errorf("%d objects were won, want %d", len(won), childObjects)
	}
	for name, n := range won {
		if n != 1 {
			t.Errorf("%s was won by %d writers", name, n)
		}
	}
}

// Promise 1: a writer that is killed at any moment leaves whole objects only.
func TestKilledWriter(t *testing.T) {
	root := t.TempDir()
	for kill := range 4 {
		killWriter(t, root, kill)
	}
}

// The same of one that puts several at once: none that names another is there without that.
func TestKilledWriterOfSeveral(t *testing.T) {
	root := t.TempDir()
	for kill := range 4 {
		killWriter(t, root, kill, "-together")
		s := open(t, root)
		for _, name := range listed(t, s, namesFolder) {
			if _, err := s.Stat(t.Context(), "t/blobs/"+path.Base(name)); err != nil {
				t.Errorf("%s is there, and: %v", name, err)
			}
		}
		if left := logs(t, root); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// killWriter kills a writer some time after it has begun, and checks what it leaves.
func killWriter(t *testing.T, root string, kill int, more ...string) {
	t.Helper()
	cmd, out := startChild(t, root, more...)
	for seen := 0; seen <= 2*kill && out.Scan(); {
		if strings.HasPrefix(out.Text(), "won ") {
			seen++
		}
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, or done before that
	s := open(t, root)
	names := listed(t, s, "t/blobs/")
	if kill == 0 && len(names) == 0 {
		t.Error("nothing was stored before the writer was killed")
	}
	for _, name := range names {
		r, err := s.Get(t.Context(), name, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if got := cache.Sum(b).String(); !strings.HasSuffix(name, got) {
			t.Errorf("%s holds bytes of %s", name, got)
		}
	}
}
