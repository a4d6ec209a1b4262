package dir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/dir"
	"lector/cache/disk/disktest"
)

// promised is a handle that PutHandle had returned by some effect.
type promised struct {
	effects int
	handle  cache.Digest
	tokens  []int32
}

// Whenever the power goes, a handle that was promised is there, each that is there is whole, and a document that was being
// read comes to the handle of a calm run.
func TestPowerFailure(t *testing.T) {
	everyEnd(t, ending{fates: disktest.Fates})
}

// The same where the log names files, as it does for what is not small.
func TestPowerFailureOfFilesOfTheLog(t *testing.T) {
	everyEnd(t, ending{fates: disktest.Fates, inline: 100, short: true})
}

// Whenever a process dies, the next that opens the folder goes on from the log.
func TestDeathOfAWriter(t *testing.T) {
	everyEnd(t, ending{fates: death, inline: 100, short: true})
}

// ending is how writers of a store end.
type ending struct {
	options dir.Options
	fates   func(seed uint64) []disktest.Fate
	inline  int64 // of the store; 0: its own
	short   bool  // of fewer cells
}

func death(uint64) []disktest.Fate { return []disktest.Fate{disktest.Death()} }

// Whenever a process dies, and nothing else does, the same holds of a store that does not wait for the disk.
func TestDeathOfAnUnsyncedWriter(t *testing.T) {
	everyEnd(t, ending{options: dir.Options{Unsynced: true}, fates: death})
}

// A store that is not synced does not wait for the disk at all.
func TestUnsyncedSyncsNothing(t *testing.T) {
	recorder, err := disktest.Record(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := dir.OpenRoot(recorder, dir.Options{Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := cachetest.Document{Space: &cache.Space{Store: s}, Tokens: cachetest.Count(5, 20), Job: "job", Keep: func(int) bool { return true }}
	if _, _, err := d.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := recorder.Syncs(); n != 0 {
		t.Errorf("%d syncs", n)
	}
}

// everyEnd reads two documents, ends that after each effect, as the fates have it, and looks at what is found.
func everyEnd(t *testing.T, e ending) {
	t.Helper()
	recorder, err := disktest.Record(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := dir.OpenRoot(recorder, e.options)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.SettleLate() // at the end: what happens then is the same
	if e.inline != 0 {
		s.InlineBytes(e.inline)
	}
	space := &cache.Space{Store: s}
	var promises []promised
	length := 20
	if e.short {
		length = 5
	}
	for i, tokens := range [][]int32{cachetest.Count(5, length), append(cachetest.Count(5, 8), 900, 901)} { // they share a cell
		d := cachetest.Document{Space: space, Tokens: tokens, Job: fmt.Sprint("job", i), Keep: func(int) bool { return i == 1 }}
		h, _, err := d.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := space.DropRolling(t.Context(), d.Job, nil); err != nil {
			t.Fatal(err)
		}
		promises = append(promises, promised{recorder.Effects(), h, tokens})
	}
	if err := s.Close(); err != nil { // which has effects, too
		t.Fatal(err)
	}
	seen := map[string]int{}
	for n := range recorder.Effects() + 1 {
		for _, fate := range e.fates(uint64(n)) {
			found := t.TempDir()
			said, err := recorder.Replay(n, fate, found)
			if err != nil {
				t.Fatal(err)
			}
			due := 0
			for _, p := range promises {
				if p.effects <= n {
					due++
				}
			}
			if before, ok := seen[said]; ok && before >= due { // the same was looked at
				continue
			}
			seen[said] = due
			if err := afterPower(t, found, promises, due); err != nil {
				t.Fatalf("power goes after effect %d of %d, %s: %v", n, recorder.Effects(), fate.Name, err)
			}
			if err := os.RemoveAll(found); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d different folders were found", len(seen))
	}
}

// afterPower looks at what is found: the first due handles must be there.
func afterPower(t *testing.T, found string, promises []promised, due int) error {
	again, err := disktest.Record(found) // which syncs nothing
	if err != nil {
		return err
	}
	s, err := dir.OpenRoot(again, dir.Options{})
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Base(found), err)
	}
	defer s.Close()
	space := &cache.Space{Store: s}
	there := map[cache.Digest]bool{}
	for h, err := range space.Handles(t.Context()) {
		if err != nil {
			return err
		}
		there[h.Digest] = true
	}
	for i, p := range promises {
		if i < due && !there[p.handle] {
			return fmt.Errorf("handle %d was promised and has gone", i)
		}
		if there[p.handle] {
			if err := cachetest.Check(t.Context(), space, p.handle, p.tokens); err != nil {
				return fmt.Errorf("handle %d is there: %w", i, err)
			}
		}
		delete(there, p.handle)
	}
	if len(there) > 0 {
		return errors.New("a handle is there that nobody made")
	}
	for i, p := range promises {
		d := cachetest.Document{Space: space, Tokens: p.tokens, Job: fmt.Sprint("job", i), Keep: func(int) bool { return i == 1 }}
		if h, _, err := d.Read(t.Context()); err != nil || h != p.handle {
			return fmt.Errorf("document %d is read again: %v, %w", i, h, err)
		}
	}
	return nil
}
