// Package disktest takes the power away from those who keep files through disk.Root. A Recorder passes their calls on to a
// real folder and writes down every effect; Replay makes the folder as it may be found when the power went after the
// first of them.
//
// What counts as kept is what POSIX promises and no more: the bytes of a file as of its last sync, and the names in a folder as
// of the folder's last sync, a folder's own name among those of the one above. Of what came later a file system may have
// kept any part; a Fate says which.
//
// It refuses nothing and syncs nothing, so that it is fast. A Recorder may be used from any goroutine. Start reading at Replay.
package disktest

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"

	"lector/cache/disk"
)

// kind is what an effect does.
type kind uint8

const (
	opMkdir kind = iota
	opCreate
	opWrite
	opSync // of a file
	opSyncFolder
	opLink
	opRename
	opRemove
)

// effect is one of them. Files are known by number, since their names change.
type effect struct {
	kind     kind
	name, to string
	file     int
	data     []byte
}

// Recorder is a disk.Root over a real folder.
type Recorder struct {
	disk.Root

	mu      sync.Mutex
	effects []effect
	files   int
}

// Record begins with a folder that is there and empty.
func Record(folder string) (*Recorder, error) {
	root, err := disk.OpenRoot(folder)
	return &Recorder{Root: root}, err
}

// Effects is how many there were.
func (r *Recorder) Effects() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.effects)
}

// Syncs is how many of them asked the disk to keep something.
func (r *Recorder) Syncs() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.effects {
		if e.kind == opSync || e.kind == opSyncFolder {
			n++
		}
	}
	return n
}

// do carries one effect out and writes it down, one at a time, so that their order is that on the disk.
func (r *Recorder) do(e effect, call func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := call()
	if err == nil {
		r.effects = append(r.effects, e)
	}
	return err
}

// OpenFile implements disk.Root.
func (r *Recorder) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := r.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	out := &file{File: f, recorder: r, name: path.Clean(name)}
	if flag&os.O_CREATE != 0 { // always O_EXCL: a new one
		r.files++
		out.number = r.files
		r.effects = append(r.effects, effect{kind: opCreate, name: out.name, file: out.number})
	}
	return out, nil
}

// Link implements disk.Root.
func (r *Recorder) Link(from, to string) error {
	return r.do(effect{kind: opLink, name: path.Clean(from), to: path.Clean(to)}, func() error { return r.Root.Link(from, to) })
}

// Rename implements disk.Root.
func (r *Recorder) Rename(from, to string) error {
	return r.do(effect{kind: opRename, name: path.Clean(from), to: path.Clean(to)}, func() error { return r.Root.Rename(from, to) })
}

// Remove implements disk.Root.
func (r *Recorder) Remove(name string) error {
	return r.do(effect{kind: opRemove, name: path.Clean(name)}, func() error { return r.Root.Remove(name) })
}

// MkdirAll implements disk.Root; every folder that it makes is an effect.
func (r *Recorder) MkdirAll(name string, perm fs.FileMode) error {
	name = path.Clean(name)
	if info, err := r.Lstat(name); err == nil && info.IsDir() {
		return nil
	}
	if above := path.Dir(name); above != "." {
		if err := r.MkdirAll(above, perm); err != nil {
			return err
		}
	}
	err := r.do(effect{kind: opMkdir, name: name}, func() error {
		if _, err := r.Lstat(name); err == nil {
			return fs.ErrExist
		}
		return r.Root.MkdirAll(name, perm)
	})
	if errors.Is(err, fs.ErrExist) { // another was faster
		return nil
	}
	return err
}

// file is an open file or folder.
type file struct {
	disk.File
	recorder *Recorder
	name     string // when it was opened
	number   int    // 0: it is not being made
}

// Write implements disk.File: those who keep files write from their start on.
func (f *file) Write(p []byte) (n int, err error) {
	err = f.recorder.do(effect{kind: opWrite, file: f.number, data: append([]byte(nil), p...)}, func() error {
		n, err = f.File.Write(p)
		return err
	})
	return n, err
}

// Sync implements disk.File.
func (f *file) Sync() error {
	e := effect{kind: opSyncFolder, name: f.name}
	if f.number != 0 {
		e = effect{kind: opSync, file: f.number}
	}
	return f.recorder.do(e, func() error { return nil })
}
