package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"lector/cache"
	"lector/cache/disk"
)

// journal is the log of an open store. The zero value has not begun.
type journal struct {
	mu     sync.Mutex
	id     string    // its file in logFolder; "": none
	file   disk.File // open and locked
	size   int
	users  int         // batches that are open: their files bear its name
	known  bool        // its name is durable
	broken bool        // nothing may be added: what the disk has of it is not known
	named  []string    // files of objects that the log alone keeps
	open   []disk.File // of those, the ones whose bytes it alone keeps
	temps  []string    // what to remove when it does not any more
	timer  *time.Timer
	none   bool // the folder has no locks: there can be no log
	closed bool
}

// begin makes the log, locked; it has no durable name yet. Where there can be none, it leaves that. j.mu is held.
func (s *Store) begin() (err error) {
	j := &s.journal
	if j.closed {
		return fs.ErrClosed
	}
	if j.broken {
		if err := s.endLog(); err != nil {
			return err
		}
	}
	for j.file == nil && !j.none {
		id := rand.Text()
		name := path.Join(logFolder, id)
		f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		err = lock(f)
		if err == nil && s.isAt(f, name) {
			j.id, j.file, j.size, j.known = id, f, 0, false
			return nil
		}
		f.Close()
		if err != nil && !errors.Is(err, disk.ErrLocked) { // else another took it for one of the dead
			j.none = true
			return s.forget(name)
		}
	}
	return nil
}

// know makes the names in the folder of the logs durable. j.mu is held.
func (s *Store) know() error {
	if s.journal.known {
		return nil
	}
	if err := s.syncFolders(path.Join(logFolder, s.journal.id)); err != nil {
		s.journal.broken = true
		return err
	}
	s.journal.known = true
	return nil
}

// knows says that the folder was synced since a log was made.
func (j *journal) knows(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known = j.known || j.id == id
}

// lock takes the lock of a log. A file that is not the system's own has none.
func lock(f disk.File) error {
	if own, ok := f.(*os.File); ok {
		return disk.Lock(own, false)
	}
	return nil
}

// isAt says whether an open file still has that name.
func (s *Store) isAt(f disk.File, name string) bool {
	there, err := s.root.Lstat(name)
	if err != nil {
		return false
	}
	own, err := f.Stat()
	return err == nil && os.SameFile(there, own)
}

// append makes a record durable, and whatever else beside it does. j.mu is held.
func (j *journal) append(r record, beside func() error) error {
	b, err := r.line()
	if err != nil {
		return err
	}
	j.size += len(b)
	if _, err = j.file.Write(b); err == nil {
		var g errgroup.Group
		g.Go(beside)
		err = errors.Join(j.file.Sync(), g.Wait())
	}
	if err != nil {
		j.broken = true
		return fmt.Errorf("write to the log: %w", explain(err))
	}
	return nil
}

// PutAll implements cache.Joint: a record of the log names all, and then the names are made, and nothing waits for the disk
// again. settle does that later.
func (b *batch) PutAll(ctx context.Context, names []cache.Naming) error {
	if b.store.options.Unsynced {
		if err := b.Sync(ctx); err != nil {
			return err
		}
		for _, n := range names {
			if err := n.Staged.Put(ctx, n.Name, cache.IfAbsent); err != nil {
				return err
			}
		}
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.log == "" {
		return errors.ErrUnsupported
	}
	r, joint, err := b.record(ctx, names)
	if err == nil && !(joint && b.fewBytes()) {
		err = b.Sync(ctx)
	}
	if err != nil {
		return err
	}
	s, j := b.store, &b.store.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := s.begin(); err != nil {
		return fmt.Errorf("begin log: %w", explain(err))
	}
	if j.id != b.log { // there is none, or the one that the batch began with has failed: its files are no other's
		return errors.ErrUnsupported
	}
	if err := j.append(r, b.syncJoint); err != nil {
		return err
	}
	if j.timer == nil {
		j.timer = time.AfterFunc(s.settling, s.settleSoon)
	}
	if err := s.know(); err != nil {
		return err
	}
	b.handOver(names)
	for i, e := range r.Objects {
		if err := s.nameFromLog(e); err != nil {
			err = fmt.Errorf("put %s: %w", names[i].Name, err)
			return errors.Join(err, s.settle()) // what follows in the record must not be named at another time
		}
	}
	return nil
}

// record describes objects that are staged and whose names are free. It says whether files need not be durable before it is.
func (b *batch) record(ctx context.Context, names []cache.Naming) (r record, joint bool, err error) {
	r, joint = record{Version: logVersion}, true
	for _, n := range names {
		file, err := place(n.Name)
		if err != nil {
			return r, false, err
		}
		t, ok := n.Staged.(staged)
		if !ok || t.batch != b {
			return r, false, fmt.Errorf("put %s: it is not of this batch: %w", n.Name, errors.ErrUnsupported)
		}
		if _, err := b.store.lookup(ctx, n.Name, file); !errors.Is(err, cache.ErrNotFound) {
			if err == nil {
				err = fmt.Errorf("put %s: %w", n.Name, cache.ErrExists)
			}
			return r, false, err
		}
		e, alone := t.entry(n)
		r.Objects, joint = append(r.Objects, e), joint && alone
	}
	return r, joint, nil
}

// handOver leaves the files of objects that the log names to the log, whose lock is held.
func (b *batch) handOver(names []cache.Naming) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range names {
		if t := n.Staged.(staged).temp; t.name != "" {
			t.kept = true
			b.store.journal.temps = append(b.store.journal.temps, t.name)
		}
	}
}

// nameFromLog gives an object of a record its name. j.mu is held.
func (s *Store) nameFromLog(e entry) error {
	file, err := place(e.Name)
	if err != nil {
		return err
	}
	j := &s.journal
	temp := path.Join(logFolder, e.File)
	if e.File == "" {
		temp = path.Join(logFolder, j.id+"."+rand.Text())
		f, err := s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return explain(err)
		}
		j.temps, j.open = append(j.temps, temp), append(j.open, f)
		if _, err := f.Write(e.Bytes); err != nil {
			return explain(err)
		}
	}
	j.named = append(j.named, file)
	err = s.link(temp, file, s.root.Link)
	if errors.Is(err, fs.ErrExist) {
		return cache.ErrExists
	}
	return explain(err)
}

// settleSoon is settle when the time has come.
func (s *Store) settleSoon() {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	_ = s.settle() // what fails stays in the log, and Close tries again
}

// settle makes durable without the log what it alone keeps, and says so in it. j.mu is held.
func (s *Store) settle() error {
	j := &s.journal
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	if j.file == nil || len(j.temps) == 0 {
		return nil
	}
	if j.broken {
		return errors.New("the log could not be written: it is kept for the next to open the folder")
	}
	if err := s.syncNamed(); err != nil {
		j.broken = true
		return fmt.Errorf("sync what the log names: %w", explain(err))
	}
	if err := j.append(record{Version: logVersion}, func() error { return nil }); err != nil {
		return err
	}
	var errs []error
	for _, temp := range j.temps {
		errs = append(errs, s.forget(temp))
	}
	j.named, j.temps = nil, nil
	return errors.Join(errs...)
}

// syncNamed makes bytes and names durable that the log has named. j.mu is held.
func (s *Store) syncNamed() error {
	open := s.journal.open
	s.journal.open = nil
	err := disk.SyncAll(open)
	for _, file := range s.journal.named {
		if ferr := s.syncFolders(file); !errors.Is(ferr, fs.ErrNotExist) { // else it was deleted, and the folder with it
			err = errors.Join(err, ferr)
		}
	}
	return err
}

// leave ends the use of a log by a batch, and the log where it has become long.
func (s *Store) leave() error {
	j := &s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.users--; j.users > 0 || j.size < logBytes || j.closed {
		return nil
	}
	return errors.Join(s.settle(), s.endLog())
}

// endLog gives up a log. j.mu is held.
func (s *Store) endLog() error {
	j := &s.journal
	if j.file == nil {
		return nil
	}
	var err error
	if len(j.temps) == 0 { // else the next to open the folder does what is left
		err = s.forget(path.Join(logFolder, j.id))
	}
	for _, f := range j.open {
		f.Close() // what it was to hold is in the log that stays
	}
	err = errors.Join(err, j.file.Close())
	j.id, j.file, j.size, j.broken = "", nil, 0, false
	j.named, j.open, j.temps = nil, nil, nil
	return err
}

// closeLog settles and ends it.
func (s *Store) closeLog() error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	s.journal.closed = true
	return errors.Join(s.settle(), s.endLog())
}

// names says whether the log alone keeps the name of a file.
func (j *journal) names(file string) bool { return slices.Contains(j.named, file) }
