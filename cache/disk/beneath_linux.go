package disk

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// beneath is a root whose names the system looks up in one call each, where os.Root opens every folder on the way. What it has
// no shorter way for is os.Root's.
type beneath struct {
	root
	folder *os.File
	use    syscall.RawConn // of folder: no call begins when it is closed, and none is under way when its number is free again
}

// quicker is r with fewer calls to the system, if that has openat2; else r.
func quicker(r root) Root {
	f, err := r.Root.OpenFile(".", os.O_RDONLY, 0)
	if err != nil {
		return r
	}
	use, err := f.SyscallConn()
	b := beneath{r, f, use}
	if err == nil {
		var probe int
		if probe, err = b.open(".", unix.O_PATH, 0); err == nil {
			err = unix.Close(probe)
		}
	}
	if err != nil { // an older system, or one that forbids the call
		f.Close()
		return r
	}
	return b
}

// open looks a name up: no link leads out of the folder.
func (b beneath) open(name string, flag int, perm fs.FileMode) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flag | unix.O_CLOEXEC), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	if flag&os.O_CREATE != 0 {
		how.Mode = uint64(perm.Perm())
	}
	for {
		closed := b.use.Control(func(folder uintptr) { fd, err = unix.Openat2(int(folder), name, &how) })
		if closed != nil {
			return -1, closed
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) { // again: something was renamed meanwhile
			return fd, err
		}
	}
}

// above opens the folder that a name lies in, and calls do with that and the last part of the name.
func (b beneath) above(name string, do func(folder int, last string) error) error {
	folder, err := b.open(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(folder) // only a place
	for {
		if err := do(folder, path.Base(name)); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// OpenFile implements Root.
func (b beneath) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	fd, err := b.open(name, flag, perm)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), path.Join(b.folder.Name(), name)), nil
}

// Lstat implements Root.
func (b beneath) Lstat(name string) (fs.FileInfo, error) {
	f, err := b.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	return info, errors.Join(err, f.Close())
}

// Link implements Root.
func (b beneath) Link(from, to string) error {
	return b.both("link", from, to, func(a int, old string, c int, fresh string) error { return unix.Linkat(a, old, c, fresh, 0) })
}

// Rename implements Root.
func (b beneath) Rename(from, to string) error { return b.both("rename", from, to, unix.Renameat) }

func (b beneath) both(what, from, to string, do func(a int, old string, c int, fresh string) error) error {
	err := b.above(from, func(a int, old string) error {
		return b.above(to, func(c int, fresh string) error { return do(a, old, c, fresh) })
	})
	if err != nil {
		return &os.LinkError{Op: what, Old: from, New: to, Err: err}
	}
	return nil
}

// Remove implements Root: a file goes, or an empty folder.
func (b beneath) Remove(name string) error {
	err := b.above(name, func(folder int, last string) error {
		err := unix.Unlinkat(folder, last, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(folder, last, unix.AT_REMOVEDIR)
		}
		return err
	})
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// MkdirAll implements Root.
func (b beneath) MkdirAll(name string, perm fs.FileMode) error {
	if fd, err := b.open(name, unix.O_PATH|unix.O_DIRECTORY, 0); err == nil {
		return unix.Close(fd)
	}
	return b.root.MkdirAll(name, perm)
}

// Close implements Root.
func (b beneath) Close() error { return errors.Join(b.folder.Close(), b.root.Close()) }
