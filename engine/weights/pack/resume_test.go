package pack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lector/engine/weights"
	"lector/engine/weights/pack"
	"lector/engine/weights/synth"
)

// smallSource is a model of few sections, so that each of them can be the last.
func smallSource(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	if err := synth.Write(context.Background(), dir, synth.Options{Preset: "tiny", Layers: 4, Experts: 2}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fault is a disk that fails at its n-th step that changes something, and at all after it.
type fault struct {
	pack.Disk
	left int   // steps that still work
	err  error // what the others give; nil: half of a write happens, as when the process is killed
	free int64
}

var errKilled = errors.New("killed")

// Free is what the disk says of its room, the truth where free is 0.
func (d *fault) Free() (int64, bool) { return d.free, d.free > 0 }

// Step counts a change.
func (d *fault) Step() error {
	if d.left--; d.left >= 0 {
		return nil
	}
	if d.err != nil {
		return d.err
	}
	return errKilled
}

func (d *fault) Open(path string) (pack.File, error) {
	if err := d.Step(); err != nil {
		return nil, err
	}
	f, err := pack.OpenOn(d.Disk, path)
	return &faultFile{f, d}, err
}

type faultFile struct {
	pack.File
	disk *fault
}

func (f *faultFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.disk.Step(); err != nil {
		n := 0
		if f.disk.left == -1 {
			n, _ = f.File.WriteAt(p[:len(p)/2], at)
		}
		return n, err
	}
	return f.File.WriteAt(p, at)
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.disk.Step(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Sync() error {
	if err := f.disk.Step(); err != nil {
		return err
	}
	return nil // the test does not wait for the disk
}

// tree is a folder's files.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		m[e.Name()] = string(readFile(t, dir, e.Name()))
	}
	return m
}

func sameTree(t testing.TB, want, got map[string]string, what string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d files, want %d", what, len(got), len(want))
	}
	for name, data := range want {
		if got[name] != data {
			t.Errorf("%s: %s is not the same", what, name)
		}
	}
}

// Killed at any step, nothing loads; run again, the files are the same to the byte.
func TestKilledAtEveryStep(t *testing.T) {
	source := smallSource(t)
	c := open(t, source)
	o := pack.Options{Settings: pack.Settings{Bits: pack.Keep, ExpertsBits: 4, Group: 32}}
	whole := filepath.Join(t.TempDir(), "whole")
	counter := &fault{Disk: pack.System(), left: 1 << 30}
	if _, err := pack.Run(context.Background(), c, whole, o.On(pack.Wrap(counter))); err != nil {
		t.Fatal(err)
	}
	want, steps := tree(t, whole), 1<<30-counter.left
	if steps < 100 {
		t.Fatalf("%d steps", steps)
	}
	reused := int64(0)
	for n := range steps {
		if n%4 != 0 && n < steps-20 { // every fourth, and each of the last ones, where the files change roles
			continue
		}
		dir := filepath.Join(t.TempDir(), "store")
		_, err := pack.Run(context.Background(), c, dir, o.On(pack.Wrap(&fault{Disk: pack.System(), left: n})))
		what := fmt.Sprintf("killed at step %d of %d", n, steps)
		opened, openErr := weights.Open(dir)
		if openErr == nil {
			opened.Close()
			sameTree(t, want, without(tree(t, dir), "pack.journal"), what) // the manifest was there: the store is whole
		}
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		again, err := pack.Run(context.Background(), c, dir, o.On(pack.Wrap(&fault{Disk: pack.System(), left: 1 << 30})))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		reused = max(reused, again.Reused)
		sameTree(t, want, tree(t, dir), what)
		os.RemoveAll(dir)
	}
	if reused < int64(len(want["experts.bin"]))/4 {
		t.Errorf("at most %d bytes were reused", reused)
	}
}

func without(m map[string]string, name string) map[string]string {
	delete(m, name)
	return m
}

// A full disk is an error that says so, before anything is written where the system tells, and the run goes on
// when there is room.
func TestFullDisk(t *testing.T) {
	c := open(t, smallSource(t))
	o := pack.Options{Settings: keep()}
	dir := filepath.Join(t.TempDir(), "store")
	_, err := pack.Run(context.Background(), c, dir, o.On(pack.Wrap(&fault{Disk: pack.System(), left: 1 << 30, free: 1000})))
	if err == nil || !strings.Contains(err.Error(), "1000 are free") {
		t.Errorf("%v", err)
	}
	_, err = pack.Run(context.Background(), c, dir, o.On(pack.Wrap(&fault{Disk: pack.System(), left: 60, err: syscall.ENOSPC})))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), ".bin") && !strings.Contains(err.Error(), "journal") {
		t.Errorf("%v", err)
	}
	if weights.IsPacked(dir) {
		t.Error("a store on a full disk has a manifest")
	}
	if _, err := pack.Run(context.Background(), c, dir, o); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestStartsOver(t *testing.T) {
	source := copyDir(t, smallSource(t))
	o := pack.Options{Settings: keep()}
	var notes []string
	o.Note = func(text string) { notes = append(notes, text) }
	interrupted := func(dir string) {
		t.Helper()
		notes = nil
		if _, err := pack.Run(context.Background(), open(t, source), dir, o.On(pack.Wrap(&fault{Disk: pack.System(), left: 90}))); err == nil {
			t.Fatal("not interrupted")
		}
	}
	dir := filepath.Join(t.TempDir(), "store")
	interrupted(dir)
	other := o
	other.ExpertsBits = 4
	report, err := pack.Run(context.Background(), open(t, source), dir, other)
	if err != nil || report.Reused != 0 || len(notes) != 1 || !strings.Contains(notes[0], "settings changed") {
		t.Errorf("other settings: %+v, %v, %q", report, err, notes)
	}
	dir = filepath.Join(t.TempDir(), "store")
	interrupted(dir)
	change(t, source, "model.safetensors", func(d []byte) { d[len(d)-9] ^= 1 })
	c := open(t, source)
	report, err = pack.Run(context.Background(), c, dir, o)
	if err != nil || report.Reused != 0 || len(notes) != 1 || !strings.Contains(notes[0], "source changed") {
		t.Errorf("other source: %+v, %v, %q", report, err, notes)
	}
	if digest(t, open(t, dir)) != digest(t, c) {
		t.Error("the store is not the changed source's")
	}
}

// What the journal names is read back: damage between two runs is repaired, not kept.
func TestReusedSectionsAreCompared(t *testing.T) {
	c := open(t, smallSource(t))
	o := pack.Options{Settings: keep()}
	dir := filepath.Join(t.TempDir(), "store")
	if _, err := pack.Run(context.Background(), c, dir, o.On(pack.Wrap(&fault{Disk: pack.System(), left: 200}))); err == nil {
		t.Fatal("not interrupted")
	}
	for _, name := range []string{"dense.bin", "experts.bin"} {
		change(t, dir, name, func(d []byte) {
			if len(d) > 0 {
				d[0] ^= 1
			}
		})
	}
	report, err := pack.Run(context.Background(), c, dir, o)
	if err != nil || report.Reused == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if _, err := pack.Verify(context.Background(), dir, weights.Options{}, nil); err != nil {
		t.Error(err)
	}
	if digest(t, open(t, dir)) != digest(t, c) {
		t.Error("the digest is not the source's")
	}
}

func TestRefusals(t *testing.T) {
	source := smallSource(t)
	c := open(t, source)
	store := packed(t, source, keep())
	full := t.TempDir()
	writeFile(t, full, "letter.txt", nil)
	for name, r := range map[string]struct {
		source   *weights.Checkpoint
		dir      string
		settings pack.Settings
		want     string
	}{
		"five bits":        {c, t.TempDir(), bits(5), "5 bits"},
		"groups of 16":     {c, t.TempDir(), pack.Settings{Group: 16}, "groups of 16"},
		"full folder":      {c, full, keep(), "letter.txt"},
		"its own folder":   {c, source, keep(), "choose an empty folder"},
		"another store":    {c, store, bits(4), "holds a packed store"},
		"a packed source":  {open(t, store), t.TempDir(), keep(), "plain checkpoint"},
		"no such settings": {c, t.TempDir(), pack.Settings{Bits: -1, Group: 64}, "-1 bits"},
	} {
		if _, err := pack.Run(context.Background(), r.source, r.dir, pack.Options{Settings: r.settings}); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: %v\nwant %q", name, err, r.want)
		}
	}
	before := tree(t, store)
	if report, err := pack.Run(context.Background(), c, store, pack.Options{Settings: keep()}); err != nil || !report.Already {
		t.Errorf("the same again: %+v, %v", report, err)
	}
	sameTree(t, before, tree(t, store), "packed again")
}

func TestCancelled(t *testing.T) {
	c := open(t, smallSource(t))
	ctx, cancel := context.WithCancel(context.Background())
	dir := filepath.Join(t.TempDir(), "store")
	o := pack.Options{Settings: keep(), Progress: func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}}
	if _, err := pack.Run(ctx, c, dir, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	o.Progress = nil
	report, err := pack.Run(context.Background(), c, dir, o)
	if err != nil || report.Reused < report.Bytes/3 {
		t.Errorf("%+v, %v", report, err)
	}
}

// Buffers are bounded by pieces, not by tensors or the model.
func TestMemory(t *testing.T) {
	source := filepath.Join(t.TempDir(), "model")
	if err := synth.Write(context.Background(), source, synth.Options{Preset: "tiny", Layers: 4, Experts: 400}); err != nil {
		t.Fatal(err)
	}
	c := open(t, source)
	report, err := pack.Run(context.Background(), c, filepath.Join(t.TempDir(), "store"), pack.Options{Settings: keep()})
	if err != nil {
		t.Fatal(err)
	}
	largest := int64(0)
	for _, tensor := range c.Tensors() {
		largest = max(largest, tensor.Bytes())
	}
	if limit := int64(18 * pack.ChunkBytes); report.Buffers > limit || largest < 3*pack.ChunkBytes {
		t.Errorf("%d bytes of buffers, at most %d are allowed; the largest tensor has %d", report.Buffers, limit, largest)
	}
}
