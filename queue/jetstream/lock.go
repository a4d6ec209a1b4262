package jetstream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// LockedError says that another process, or another part of this one, owns a data folder.
type LockedError struct {
	Dir string
	PID int // of the owner; 0 when it has not written it yet
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data folder %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("data folder %s is in use by process %d", e.Dir, e.PID)
}

// FolderLock is the ownership of a data folder. The kernel ends it with the process, however that ends.
type FolderLock struct {
	dir  string
	file *os.File
}

// Lock makes this process the owner of the data folder, which is created if it is missing. It does not wait: while
// somebody else is the owner, it returns a *LockedError.
func Lock(dir string) (*FolderLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	// The file is never removed: a lock on a removed file would exclude nobody.
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of data folder: %w", err)
	}
	if err := lockFile(f); err != nil {
		pid := readPID(f)
		if err := errors.Join(err, f.Close()); !errors.Is(err, errLocked) {
			return nil, fmt.Errorf("lock data folder %s: %w", dir, err)
		}
		return nil, &LockedError{Dir: dir, PID: pid}
	}
	l := &FolderLock{dir: dir, file: f}
	if err := l.writePID(); err != nil {
		return nil, errors.Join(fmt.Errorf("write lock of data folder %s: %w", dir, err), l.Release())
	}
	return l, nil
}

// Release ends the ownership. Releasing twice is harmless.
func (l *FolderLock) Release() error {
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	if err := errors.Join(f.Truncate(0), f.Close()); err != nil {
		return fmt.Errorf("release lock of data folder %s: %w", l.dir, err)
	}
	return nil
}

// holds says that the lock is held and is on dir.
func (l *FolderLock) holds(dir string) bool {
	if l.file == nil {
		return false
	}
	a, errA := os.Stat(l.dir)
	b, errB := os.Stat(dir)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

func (l *FolderLock) writePID() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// readPID returns 0 for what is not a pid: the owner may be about to write it.
func readPID(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// errLocked says that somebody else holds the lock of a file.
var errLocked = errors.New("file is locked")
