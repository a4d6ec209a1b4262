package dir_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lector/cache"
	"lector/cache/dir"
	"lector/cache/disk"
)

const (
	large = "t/blobs/large"
	small = "t/nodes/small"
)

var bodies = map[string]string{large: strings.Repeat("rows ", 100), small: "a node"}

// logged puts two objects at once, one of them a file of the log that is synced before. The store is left as it is then.
func logged(t *testing.T, s *dir.Store) {
	t.Helper()
	putBoth(t, s, true)
}

// putBoth puts two objects at once, one of them a file of the log: synced before, or beside the record.
func putBoth(t *testing.T, s *dir.Store, before bool) {
	t.Helper()
	s.InlineBytes(10)
	s.SettleLate()
	batch, err := s.Stage(t.Context(), []int64{1000})
	if err != nil {
		t.Fatal(err)
	}
	var names []cache.Naming
	for _, name := range []string{large, small} {
		staged, err := batch.Add(t.Context(), strings.NewReader(bodies[name]), int64(len(bodies[name])))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, cache.Naming{Staged: staged, Name: name, Digest: cache.Sum([]byte(bodies[name]))})
	}
	if before {
		if err := batch.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(batch.(cache.Joint).PutAll(t.Context(), names), batch.Close()); err != nil {
		t.Fatal(err)
	}
}

// dead is a folder in which a store has died just after logged.
func dead(t *testing.T) string {
	t.Helper()
	return deadAfter(t, true)
}

// deadAfter is a folder in which a store has died just after putBoth.
func deadAfter(t *testing.T, before bool) string {
	t.Helper()
	root := t.TempDir()
	putBoth(t, open(t, root), before)
	out := t.TempDir()
	if err := os.CopyFS(out, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	return out
}

func logs(t *testing.T, root string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(root, "log~", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func holdsBoth(t *testing.T, s *dir.Store) {
	t.Helper()
	for name, want := range bodies {
		r, err := s.Get(t.Context(), name, 0, -1)
		if err != nil {
			t.Error(err)
			continue
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || string(b) != want {
			t.Errorf("%s holds %.20q, %v", name, b, err)
		}
	}
}

// What was promised is there although names, bytes of small objects and folders did not reach the disk.
func TestLogGivesNamesAgain(t *testing.T) {
	for what, spoil := range map[string]func(root string) error{
		"nothing": func(string) error { return nil },
		"names": func(root string) error {
			return errors.Join(os.Remove(filepath.Join(root, large)), os.Remove(filepath.Join(root, small)))
		},
		"folders":        func(root string) error { return os.RemoveAll(filepath.Join(root, "t")) },
		"all of a node":  func(root string) error { return os.WriteFile(filepath.Join(root, small), nil, 0o600) },
		"part of a node": func(root string) error { return os.WriteFile(filepath.Join(root, small), []byte("a n"), 0o600) },
		"bytes of a node": func(root string) error {
			return os.WriteFile(filepath.Join(root, small), []byte("a \x00\x00\x00\x00"), 0o600)
		},
	} {
		t.Run(what, func(t *testing.T) {
			root := dead(t)
			if err := spoil(root); err != nil {
				t.Fatal(err)
			}
			s := open(t, root)
			holdsBoth(t, s)
			if left := logs(t, root); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A record that reached the disk before the file that it names counts only where the file did, too: else none of its objects
// has a name.
func TestRecordBesideItsFile(t *testing.T) {
	for what, lost := range map[string]func(file string) error{
		"nothing":      nil,
		"the file":     os.Remove,
		"its bytes":    func(file string) error { return os.Truncate(file, 0) },
		"its end":      func(file string) error { return os.Truncate(file, int64(len(bodies[large])-1)) },
		"a page of it": func(file string) error { return os.WriteFile(file, make([]byte, len(bodies[large])), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			root := deadAfter(t, false)
			files, err := filepath.Glob(filepath.Join(root, "log~", "*.*"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, file := range files {
				if b, err := os.ReadFile(file); err != nil || string(b) != bodies[large] {
					continue // the small one's
				}
				if lost != nil {
					err = lost(file)
				}
			}
			if err := errors.Join(err, os.RemoveAll(filepath.Join(root, "t"))); err != nil { // names come last
				t.Fatal(err)
			}
			s := open(t, root)
			if lost == nil {
				holdsBoth(t, s)
			} else if got := listed(t, s, ""); len(got) != 0 {
				t.Errorf("found: %v", got)
			}
			if left := logs(t, root); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// An object that another has put under the name of a small one is no torn one, and stays.
func TestLogLeavesOthersAlone(t *testing.T) {
	root := dead(t)
	if err := os.WriteFile(filepath.Join(root, small), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, root)
	if b, err := os.ReadFile(filepath.Join(root, small)); err != nil || string(b) != "another" {
		t.Errorf("%q, %v", b, err)
	}
}

// A log of a store that is open is its own business.
func TestLogOfTheLivingIsLeftAlone(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	logged(t, s)
	before := logs(t, root)
	if err := open(t, root).Delete(t.Context(), "t/other"); err != nil {
		t.Fatal(err)
	}
	if after := logs(t, root); !slices.Equal(before, after) {
		t.Errorf("%v became %v", before, after)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left := logs(t, root); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	holdsBoth(t, open(t, root))
}

// What was deleted comes back by no log: not by that of the store that deletes, and not by that of one that is dead.
func TestDeletedStaysDeleted(t *testing.T) {
	own := t.TempDir()
	s := open(t, own)
	logged(t, s)
	other := dead(t)
	if err := os.Rename(filepath.Join(other, "log~"), filepath.Join(other, "kept")); err != nil {
		t.Fatal(err)
	}
	late := open(t, other) // which was open when the other died
	if err := errors.Join(os.RemoveAll(filepath.Join(other, "log~")), os.Rename(filepath.Join(other, "kept"), filepath.Join(other, "log~"))); err != nil {
		t.Fatal(err)
	}
	for root, s := range map[string]*dir.Store{own: s, other: late} {
		if err := s.Delete(t.Context(), small); err != nil {
			t.Fatal(err)
		}
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(root)); err != nil {
			t.Fatal(err)
		}
		if got := listed(t, open(t, copied), ""); !slices.Equal(got, []string{large}) {
			t.Errorf("the next finds %v", got)
		}
	}
}

var errCut = errors.New("cut")

// cut is a root that fails after some effects.
type cut struct {
	disk.Root
	left *int
}

func (c cut) effect(do func() error) error {
	if *c.left--; *c.left < 0 {
		return errCut
	}
	return do()
}

func (c cut) OpenFile(name string, flag int, perm fs.FileMode) (f disk.File, err error) {
	if flag&os.O_CREATE == 0 {
		return c.Root.OpenFile(name, flag, perm)
	}
	err = c.effect(func() error {
		f, err = c.Root.OpenFile(name, flag, perm)
		return err
	})
	return f, err
}

func (c cut) Link(from, to string) error {
	return c.effect(func() error { return c.Root.Link(from, to) })
}
func (c cut) Rename(from, to string) error {
	return c.effect(func() error { return c.Root.Rename(from, to) })
}
func (c cut) Remove(name string) error { return c.effect(func() error { return c.Root.Remove(name) }) }

// One who carries a log out may die, too, after any effect.
func TestDeathOverALog(t *testing.T) {
	for n := range 100 {
		root := dead(t)
		if err := os.WriteFile(filepath.Join(root, small), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(root, large)); err != nil {
			t.Fatal(err)
		}
		inner, err := disk.OpenRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		left := n
		s, err := dir.OpenRoot(cut{inner, &left}, dir.Options{})
		if err == nil {
			s.Close()
		} else if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		holdsBoth(t, open(t, root))
		if err == nil {
			if n < 5 {
				t.Errorf("only %d effects", n)
			}
			return
		}
	}
	t.Error("a log has no end")
}

// A log is read up to what was not written to its end, and one of a newer lector is refused.
func TestRecords(t *testing.T) {
	root := dead(t)
	var log []byte
	for _, file := range logs(t, root) {
		if !strings.Contains(filepath.Base(file), ".") {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			log = b
		}
	}
	if names, err := dir.Records(log); err != nil || !slices.Equal(names, []string{large, small}) {
		t.Fatalf("%v, %v", names, err)
	}
	twice := append(slices.Clone(log), log...)
	for n := range twice {
		want := 2 * (n / len(log))
		if names, err := dir.Records(twice[:n]); err != nil || len(names) != want {
			t.Fatalf("the first %d bytes hold %v, %v", n, names, err)
		}
		bad := slices.Clone(twice)
		bad[n] ^= 1
		if names, err := dir.Records(bad); err != nil || len(names) != want {
			t.Fatalf("with byte %d changed it holds %v, %v", n, names, err)
		}
	}
	settled := `{"version":1,"objects":null}`
	newer := `{"version":3}`
	if names, err := dir.Records(append(slices.Clone(log), line(settled)...)); err != nil || len(names) != 0 {
		t.Errorf("settled: %v, %v", names, err)
	}
	if _, err := dir.Records([]byte(line(newer))); err == nil || !strings.Contains(err.Error(), "newer lector") {
		t.Errorf("newer: %v", err)
	}
}

// line is a record as it stands in a log.
func line(body string) string { return cache.Sum([]byte(body)).String() + " " + body + "\n" }

// Whatever lies in a log, only whole records count, and what is torn behind them changes nothing.
func FuzzRecords(f *testing.F) {
	for _, body := range []string{
		`{"version":1,"objects":[{"name":"t/blobs/a","file":"x.y"},{"name":"t/handles/a","bytes":"aGFuZGxl"}]}`,
		`{"version":2,"objects":[{"name":"t/blobs/a","file":"x.y","sum":"00"}]}`,
		`{"version":1,"objects":[]}`, `{"version":3,"objects":null}`, `{"version":1,"objects":[{"name":7}]}`,
	} {
		f.Add([]byte(line(body)))
		f.Add([]byte(line(body) + line(body)))
	}
	f.Add([]byte("no digest\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		names, err := dir.Records(log)
		if err != nil && names != nil {
			t.Errorf("%v, and yet %v", err, names)
		}
		if len(log) > 0 && log[len(log)-1] != '\n' {
			log = append(log, '\n')
			if names, err = dir.Records(log); err != nil {
				return
			}
		}
		again, aerr := dir.Records(append(slices.Clone(log), "torn"...))
		if (err == nil) != (aerr == nil) || !slices.Equal(names, again) {
			t.Errorf("%v (%v), and with a torn line behind %v (%v)", names, err, again, aerr)
		}
	})
}
