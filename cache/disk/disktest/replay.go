package disktest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Fate says what becomes of what was not synced: of a name, and of a file's bytes.
type Fate struct {
	Name string // for messages
	name func() bool
	data func() bool
}

// Fates are: all is lost; names are there and the bytes behind them are not, as a file system may order them; and some of
// both, as the seed has it.
func Fates(seed uint64) []Fate {
	always := func(v bool) func() bool { return func() bool { return v } }
	r := rand.New(rand.NewPCG(seed, 1))
	coin := func() bool { return r.IntN(2) == 0 }
	return []Fate{
		{"all is lost", always(false), always(false)},
		{"names are kept", always(true), always(false)},
		{fmt.Sprint("some is kept, seed ", seed), coin, coin},
	}
}

// Death is that of the process alone: the system has everything that was written, synced or not.
func Death() Fate {
	all := func() bool { return true }
	return Fate{"the process dies", all, all}
}

// node is a file or a folder while effects are gone through.
type node struct {
	folder bool
	data   []byte
	synced int // bytes of data that are durable

	names, durable map[string]*node
}

func newFolder() *node {
	return &node{folder: true, names: map[string]*node{}, durable: map[string]*node{}}
}

// world is everything after some effects.
type world struct {
	root  *node
	files map[int]*node
}

// find is what a path leads to; nil: nothing.
func (w *world) find(name string) *node {
	n := w.root
	if name == "." {
		return n
	}
	for part := range strings.SplitSeq(name, "/") {
		if n == nil || !n.folder {
			return nil
		}
		n = n.names[part]
	}
	return n
}

func (w *world) name(name string, n *node) { w.find(path.Dir(name)).names[path.Base(name)] = n }

func (w *world) unname(name string) { delete(w.find(path.Dir(name)).names, path.Base(name)) }

func (w *world) apply(e effect) {
	switch e.kind {
	case opMkdir:
		w.name(e.name, newFolder())
	case opCreate:
		n := &node{}
		w.files[e.file] = n
		w.name(e.name, n)
	case opWrite:
		n := w.files[e.file]
		n.data = append(n.data, e.data...)
	case opSync:
		n := w.files[e.file]
		n.synced = len(n.data)
	case opSyncFolder:
		if n := w.find(e.name); n != nil { // it may have gone since it was opened
			n.durable = maps.Clone(n.names)
		}
	case opLink:
		w.name(e.to, w.find(e.name))
	case opRename:
		n := w.find(e.name)
		w.unname(e.name)
		w.name(e.to, n)
	case opRemove:
		w.unname(e.name)
	}
}

// Replay makes, in an empty folder, what is found when the power went after the first n effects. It returns a text that is
// the same for equal finds.
func (r *Recorder) Replay(n int, f Fate, into string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &world{root: newFolder(), files: map[int]*node{}}
	for _, e := range r.effects[:n] {
		w.apply(e)
	}
	var said bytes.Buffer
	err := w.root.leave(f, into, &said)
	return said.String(), err
}

// leave writes what a crash leaves of a folder.
func (n *node) leave(f Fate, into string, said *bytes.Buffer) error {
	left := maps.Clone(n.durable)
	for _, name := range slices.Sorted(maps.Keys(merged(n.names, n.durable))) {
		if n.names[name] != n.durable[name] && f.name() {
			left[name] = n.names[name] // nil: it was removed
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		child, file := left[name], filepath.Join(into, name)
		if child == nil {
			continue
		}
		if child.folder {
			fmt.Fprintf(said, "%s/\n", file[len(into):])
			if err := os.Mkdir(file, 0o700); err != nil {
				return err
			}
			if err := child.leave(f, file, said); err != nil {
				return err
			}
			continue
		}
		data := child.data
		if child.synced < len(data) && !f.data() {
			data = append(slices.Clone(data[:child.synced]), make([]byte, (len(data)-child.synced)/2)...)
		}
		fmt.Fprintf(said, "%s %x\n", name, data)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
	}
	fmt.Fprintln(said, "end")
	return nil
}

// merged has the names of both.
func merged(a, b map[string]*node) map[string]*node {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
