package pack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"lector/engine/weights"
)

// Options are settings and ears of a run.
type Options struct {
	Settings
	// Progress hears how many bytes of the store are written or found written, and how many there will be.
	Progress func(done, total int64)
	// Note hears what a person may want to know, such as why a run starts over.
	Note func(string)

	disk disk // the real one if nil
}

// Report says what a run did.
type Report struct {
	Bytes   int64 // of the store's data
	Reused  int64 // bytes of it that an earlier run had written
	Written int64
	Already bool  // the folder held this very store: nothing was done
	Buffers int64 // bytes of all buffers together
}

// run is one run of the packer.
type run struct {
	Options
	plan    *plan
	dir     string
	files   [3]file
	journal *journal
	report  Report
}

// Run packs a checkpoint, opened from a folder, into a folder: a new or empty one, or one that an earlier run was
// interrupted in. It returns when the store is complete and on disk, or with an error, after which the same call
// goes on. Cancelling ctx stops it between two sections.
func Run(ctx context.Context, source *weights.Checkpoint, dir string, o Options) (Report, error) {
	r := &run{Options: o, dir: dir}
	if r.disk == nil {
		r.disk = system{}
	}
	if r.Progress == nil {
		r.Progress = func(int64, int64) {}
	}
	if r.Note == nil {
		r.Note = func(string) {}
	}
	err := r.run(ctx, source)
	if err != nil {
		err = fmt.Errorf("pack %s into %s: %w", source.Name(), dir, err)
	}
	return r.report, err
}

func (r *run) run(ctx context.Context, source *weights.Checkpoint) (err error) {
	if err := r.Settings.Check(); err != nil {
		return err
	}
	if source.Packed() != nil || source.Dir() == "" {
		return errors.New("the source must be a plain checkpoint in a folder")
	}
	if r.plan, err = newPlan(source, r.Settings); err != nil {
		return err
	}
	r.report.Bytes = r.plan.total
	if weights.IsPacked(r.dir) {
		return r.already()
	}
	if err := r.admit(); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(r.dir, journalFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(source); err != nil {
		return err
	}
	if err := r.fill(ctx); err != nil {
		return err
	}
	return r.finish(source)
}

// already decides about a folder that holds a complete store: the same one is success, another is not touched.
func (r *run) already() error {
	p, err := weights.OpenPacked(r.dir)
	if err != nil {
		return err
	}
	defer p.Close()
	m := p.Manifest()
	if m.Source.Digest != r.plan.manifest.Source.Digest || m.Settings != r.plan.manifest.Settings {
		return fmt.Errorf("the folder holds a packed store of %s (%s): remove it or choose another folder", m.Source.Name, m.Settings)
	}
	r.report.Already = true
	return r.disk.remove(filepath.Join(r.dir, journalFile))
}

// admit makes the folder and refuses one with files of others in it.
func (r *run) admit() error {
	if err := r.disk.mkdir(r.dir); err != nil {
		return err
	}
	list, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	ours := slices.ContainsFunc(list, func(e fs.DirEntry) bool { return e.Name() == journalFile })
	if len(list) > 0 && !ours {
		return fmt.Errorf("the folder holds %s and no run that was interrupted: choose an empty folder", list[0].Name())
	}
	return nil
}

// open decides whether an earlier run goes on, checks that there is room, and opens the files.
func (r *run) open(source *weights.Checkpoint) error {
	fingerprint, err := fingerprint(source)
	if err != nil {
		return err
	}
	want := journalHead{Journal: 1, Source: fingerprint, Settings: r.Settings.String()}
	was := readJournal(r.dir)
	goOn := was.head == want
	if !goOn {
		if was.head != (journalHead{}) {
			what := "source"
			if was.head.Source == want.Source {
				what = "settings"
			}
			r.Note(fmt.Sprintf("the %s changed since the interrupted run: starting over", what))
		}
		was = earlier{}
	}
	if err := r.openFiles(goOn); err != nil {
		return err
	}
	r.journal.end, r.journal.done = was.end, was.done
	if err := r.journal.file.Truncate(was.end); err != nil {
		return fmt.Errorf("truncate %s: %w", journalFile, err)
	}
	if goOn {
		r.Note(fmt.Sprintf("going on with an interrupted run: %d sections are there", len(was.done)))
	} else if err := r.journal.write(want); err != nil {
		return err
	}
	return r.room()
}

// openFiles opens journal and data files, empty ones unless the run goes on.
func (r *run) openFiles(goOn bool) error {
	j, err := r.disk.open(filepath.Join(r.dir, journalFile))
	if err != nil {
		return err
	}
	r.journal = &journal{file: j}
	if !goOn { // before the data goes, so that no line speaks of what is gone
		if err := j.Truncate(0); err != nil {
			return fmt.Errorf("truncate %s: %w", journalFile, err)
		}
	}
	for i, name := range dataFiles() {
		f, err := r.disk.open(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		r.files[i] = f
		if !goOn {
			if err := f.Truncate(0); err != nil {
				return fmt.Errorf("truncate %s: %w", name, err)
			}
		}
	}
	return nil
}

// room checks that what is to come fits.
func (r *run) room() error {
	free, err := r.disk.free(r.dir)
	if err != nil {
		return err
	}
	need := r.plan.total + 64*int64(len(r.plan.units))
	for _, name := range dataFiles() {
		need -= allocated(filepath.Join(r.dir, name))
	}
	if need > free {
		return fmt.Errorf("%d bytes are still to be written and %d are free there: make room or choose another folder", need, free)
	}
	return nil
}

func (r *run) close() error {
	var errs []error
	if r.journal != nil {
		errs = append(errs, r.journal.file.Close())
	}
	for _, f := range r.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// finish puts everything on disk, then the manifest, and only then removes the journal.
func (r *run) finish(source *weights.Checkpoint) error {
	m := r.plan.manifest
	m.Stacks = r.plan.stacks.digests()
	for i, f := range r.files {
		if err := errors.Join(f.Truncate(m.Data[i].Bytes), f.Sync()); err != nil {
			return fmt.Errorf("finish %s: %w", m.Data[i].Name, err)
		}
	}
	for _, name := range copiedFiles() {
		text, err := os.ReadFile(filepath.Join(source.Dir(), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = r.put(name, text)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		sum := sha256.Sum256(text)
		m.Files = append(m.Files, weights.PackedFile{Name: name, Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:])})
	}
	text, err := m.Encode()
	if err != nil {
		return err
	}
	if _, err := weights.ParsePacked(text); err != nil {
		return fmt.Errorf("the manifest does not hold what it must: %w", err)
	}
	temporary := weights.PackedManifestFile + ".tmp"
	if err := r.put(temporary, text); err != nil {
		return fmt.Errorf("write %s: %w", temporary, err)
	}
	if err := r.disk.syncDir(r.dir); err != nil {
		return err
	}
	if err := r.disk.rename(filepath.Join(r.dir, temporary), filepath.Join(r.dir, weights.PackedManifestFile)); err != nil {
		return err
	}
	if err := r.disk.syncDir(r.dir); err != nil {
		return err
	}
	return r.disk.remove(filepath.Join(r.dir, journalFile))
}

// copiedFiles stand beside the data as they stand beside the source.
func copiedFiles() []string {
	return []string{"config.json", "generation_config.json", "tokenizer.json"}
}

// put writes a small file and waits until it is on disk.
func (r *run) put(name string, text []byte) error {
	f, err := r.disk.open(filepath.Join(r.dir, name))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Truncate(int64(len(text))), f.Sync(), f.Close())
}

// fingerprint tells whether a source is still the one that an interrupted run read: its headers, and the name,
// length and time of each of its files.
func fingerprint(c *weights.Checkpoint) (string, error) {
	list, err := os.ReadDir(c.Dir())
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%q\n", headerDigest(c), c.NormReadings())
	for _, e := range list {
		if ext := filepath.Ext(e.Name()); ext != ".json" && ext != ".safetensors" {
			continue
		}
		info, err := os.Stat(filepath.Join(c.Dir(), e.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %d %d\n", e.Name(), info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
