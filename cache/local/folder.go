package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"lector/cache"
	"lector/cache/disk"
)

var (
	errAbsent  = errors.New("there is no copy")
	errDamaged = errors.New("the copy is damaged")
	errRoom    = errors.New("there is no room for the copy")
)

// A copy is the object's bytes and a trailer: their CRC-32C, their number, and a mark. Its file is named by the digest
// of the object's name. A copy that is being written is named *.part and locked by its writer, so that the next one who
// looks for room sees whether the writer lives.
const (
	trailerBytes = 16
	trailerMark  = 0x3163636c // "lcc1"
	partSuffix   = ".part"
	lockName     = "lock"
	pieceBytes   = 1 << 20
)

// folder is the files. Who changes the room that they take holds the lock on lockName.
type folder struct {
	path  string
	quota int64
	block int64
	spare sync.Pool // of *[]byte, pieceBytes long
}

func openFolder(path string, quota int64) (*folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	block, err := disk.BlockSize(path)
	if err != nil {
		return nil, fmt.Errorf("ask for its block size: %w", err)
	}
	f := &folder{path: path, quota: quota, block: block}
	f.spare.New = func() any { b := make([]byte, pieceBytes); return &b }
	if quota < f.room(trailerBytes) {
		return nil, fmt.Errorf("a quota of %d bytes holds nothing: a file takes blocks of %d", quota, block)
	}
	return f, f.locked(func() error { _, err := f.makeRoom(0); return err }) // a smaller quota than before holds from now on
}

func (f *folder) file(name string) string {
	return filepath.Join(f.path, cache.Sum([]byte(name)).String())
}

// room is what a file of that size may take.
func (f *folder) room(size int64) int64 { return disk.Room(size, f.block) }

// locked runs do while no other process, and no other goroutine of this one, changes the room.
func (f *folder) locked(do func() error) error {
	l, err := os.OpenFile(filepath.Join(f.path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer l.Close() // which ends the lock
	if err := disk.Lock(l, true); err != nil {
		return err
	}
	return do()
}

// open finds the copy of an object and checks it.
func (f *folder) open(ctx context.Context, name string) (*copied, error) {
	path := f.file(name)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errAbsent
	}
	if err != nil {
		return nil, err
	}
	size, err := f.check(ctx, file)
	if errors.Is(err, errDamaged) {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil && !errors.Is(err, fs.ErrNotExist) { // used now; evicted meanwhile is no matter
		return nil, errors.Join(err, file.Close())
	}
	return &copied{file, size}, nil
}

// check reads a copy through, and returns the size of the object.
func (f *folder) check(ctx context.Context, file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	size := info.Size() - trailerBytes
	var trailer [trailerBytes]byte
	if size < 0 {
		return 0, errDamaged
	}
	if _, err := file.ReadAt(trailer[:], size); err != nil {
		return 0, err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	piece := f.spare.Get().(*[]byte)
	defer f.spare.Put(piece)
	if _, err := io.CopyBuffer(sum, struct{ io.Reader }{cache.ContextReader(ctx, io.NewSectionReader(file, 0, size))}, *piece); err != nil {
		return 0, err
	}
	if trailer != trailerOf(sum.Sum32(), size) {
		return 0, errDamaged
	}
	return size, nil
}

func trailerOf(sum uint32, size int64) (t [trailerBytes]byte) {
	binary.LittleEndian.PutUint32(t[0:], sum)
	binary.LittleEndian.PutUint64(t[4:], uint64(size))
	binary.LittleEndian.PutUint32(t[12:], trailerMark)
	return t
}

// copied is a checked copy.
type copied struct {
	file *os.File
	size int64
}

// part reads [off, off+n) of the object.
func (c *copied) part(name string, off, n int64) (io.ReadCloser, error) {
	if off < 0 || off > c.size || n > c.size-off {
		return nil, errors.Join(fmt.Errorf("get %s: %d bytes from %d are beyond its end at %d", name, n, off, c.size), c.file.Close())
	}
	if n < 0 {
		n = c.size - off
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(c.file, off, n), c.file}, nil
}

// remove forgets the copy of an object; one that cannot be removed is checked by whoever reads it.
func (f *folder) remove(name string) { os.Remove(f.file(name)) }

// writer is a copy that is being written. Its file has its full size, holes and all, from the start: its room is taken.
type writer struct {
	folder *folder
	name   string
	file   *os.File
	size   int64
	left   int64
	crc    uint32
	digest hash.Hash // nil where the name ends in none
}

// create makes room for the copy of an object. errRoom: larger than the quota, or others hold it.
func (f *folder) create(name string, size int64) (*writer, error) {
	if f.room(size+trailerBytes) > f.quota {
		return nil, errRoom
	}
	w := &writer{folder: f, name: name, size: size, left: size}
	if _, err := cache.ParseDigest(path.Base(name)); err == nil {
		w.digest = sha256.New()
	}
	err := f.locked(func() error {
		ok, err := f.makeRoom(f.room(size + trailerBytes))
		if err != nil {
			return err
		}
		if !ok {
			return errRoom
		}
		w.file, err = os.OpenFile(filepath.Join(f.path, rand.Text()+partSuffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(disk.Lock(w.file, false), w.file.Truncate(size+trailerBytes)); err != nil {
			w.drop()
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		return 0, errors.New("the object is longer than the store said")
	}
	w.left -= int64(len(p))
	w.crc = crc32.Update(w.crc, crc32.MakeTable(crc32.Castagnoli), p)
	if w.digest != nil {
		w.digest.Write(p) // a hash takes everything
	}
	return w.file.Write(p)
}

// keep makes a whole copy the one of its object. It is renamed under the lock: who looks for room must not find it under neither name.
func (w *writer) keep() error {
	err := w.whole()
	if err == nil {
		t := trailerOf(w.crc, w.size)
		_, err = w.file.Write(t[:])
	}
	if err == nil {
		err = w.folder.locked(func() error { return os.Rename(w.file.Name(), w.folder.file(w.name)) })
	}
	if err != nil {
		w.drop()
		return err
	}
	return w.file.Close()
}

// whole says whether all bytes came, and the right ones.
func (w *writer) whole() error {
	if w.left != 0 {
		return errors.New("the object is shorter than the store said")
	}
	if w.digest != nil && cache.Digest(w.digest.Sum(nil)).String() != path.Base(w.name) {
		return errDamaged
	}
	return nil
}

// drop gives a copy up. A file that cannot be removed has no owner once it is closed, and goes when room is looked for.
func (w *writer) drop() {
	os.Remove(w.file.Name())
	w.file.Close()
}

// kept is a file as makeRoom sees it.
type kept struct {
	path string
	room int64
	used time.Time
}

// makeRoom removes the copies that were used least recently until need bytes fit, and says whether they do. The lock is
// held.
func (f *folder) makeRoom(need int64) (bool, error) {
	copies, taken, err := f.scan()
	if err != nil {
		return false, err
	}
	slices.SortFunc(copies, func(a, b kept) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path))
	})
	for _, c := range copies {
		if taken+need <= f.quota {
			return true, nil
		}
		if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		taken -= c.room
	}
	return taken+need <= f.quota, nil
}

// scan lists the copies and the room that all files take, and removes those that a dead writer has left.
func (f *folder) scan() (copies []kept, taken int64, err error) {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		path := filepath.Join(f.path, e.Name())
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || e.Name() == lockName {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		room := max(f.room(info.Size()), disk.Allocated(info))
		if strings.HasSuffix(e.Name(), partSuffix) {
			if abandoned(path) {
				os.Remove(path) // or it still takes its room
				if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
					continue
				}
			}
		} else {
			copies = append(copies, kept{path, room, info.ModTime()})
		}
		taken += room
	}
	return copies, taken, nil
}

// abandoned says whether nobody writes a copy any more.
func abandoned(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer file.Close()
	return disk.Lock(file, false) == nil
}
