package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// Checkpoint is an open, checked checkpoint.
type Checkpoint struct {
	name, dir string
	config    *Config
	quant     quantConfig
	options   Options

	tensors map[string]*stored // by canonical name, vision left out
	vision  int                // tensors of the vision tower
	closers []func() error

	maps    [][]byte // mapped files
	packed  *Packed  // nil unless the folder is a packed store
	records []byte   // its experts.bin, mapped

	used     []*stored // what the network reads, sorted by canonical name
	list     []Tensor  // the same as logical tensors
	norms    map[string]normReading
	hashes   []NgramHash // by PLE layer
	findings []Finding
	digest   func() (string, error)
}

// Options settle what a checkpoint's own values leave open.
type Options struct {
	// Norms reads norm classes that the stored values do not decide: "folded" (1+w is stored) or "centred"
	// (w is stored). Empty: such a class is an error. Classes that the values decide are not affected.
	Norms string
}

// check refuses settings that mean nothing.
func (o Options) check() error {
	if !slices.Contains([]string{"", string(folded), string(centred)}, o.Norms) {
		return fmt.Errorf("norms %q: it must be %q or %q", o.Norms, folded, centred)
	}
	return nil
}

// Finding is one convention of a checkpoint, told to people.
type Finding struct {
	Class      string // what it is about, such as "norm q_norm"
	Convention string // what was found
	Evidence   string // how that is known
}

// Open opens the checkpoint in a folder: a packed store, or config.json beside model.safetensors or an index of
// shards. Files are memory-mapped; the error of a bad one names the file, the tensor and what was expected.
// A packed store's Experts are views of its mapped records, whose bytes nobody has checked; NgramTable is a copy.
func Open(dir string) (*Checkpoint, error) { return OpenWith(dir, Options{}) }

// OpenWith is Open with the user's word on what the files leave open.
func OpenWith(dir string, options Options) (*Checkpoint, error) {
	c := &Checkpoint{name: folderName(dir), dir: dir, options: options, tensors: map[string]*stored{}}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open checkpoint %s: %w", dir, err), c.Close())
	}
	return c, nil
}

// OpenBytes opens a checkpoint that is in memory already, such as an embedded one: the texts of config.json
// and of a single safetensors file, neither copied nor written to.
func OpenBytes(name string, config, model []byte) (*Checkpoint, error) {
	return OpenBytesWith(name, config, model, Options{})
}

// OpenBytesWith is OpenBytes with the user's word on what the files leave open.
func OpenBytesWith(name string, config, model []byte, options Options) (*Checkpoint, error) {
	c := &Checkpoint{name: name, options: options, tensors: map[string]*stored{}}
	if err := c.openBytes(config, model); err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", name, err)
	}
	return c, nil
}

func (c *Checkpoint) openBytes(config, model []byte) error {
	if err := c.configure(config, nil); err != nil {
		return err
	}
	if err := c.add(singleFile, model); err != nil {
		return err
	}
	return c.verify()
}

func folderName(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Base(dir)
}

func (c *Checkpoint) open() error {
	if err := c.options.check(); err != nil {
		return err
	}
	if IsPacked(c.dir) {
		return c.openPacked()
	}
	if unfinished(c.dir) {
		return errUnfinished()
	}
	config, err := os.ReadFile(filepath.Join(c.dir, "config.json"))
	if err != nil {
		return err
	}
	generation, err := os.ReadFile(filepath.Join(c.dir, "generation_config.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := c.configure(config, generation); err != nil {
		return err
	}
	if err := c.addFiles(); err != nil {
		return err
	}
	return c.verify()
}

// configure reads the config's two halves: the model and how its weights are packed.
func (c *Checkpoint) configure(config, generation []byte) (err error) {
	if err := c.options.check(); err != nil {
		return err
	}
	if c.config, err = ParseConfig(config, generation); err != nil {
		return err
	}
	c.quant, err = parseQuant(config)
	return err
}

// addFiles maps the files of the folder. The index decides where there is one: converters write it even for a
// single file.
func (c *Checkpoint) addFiles() error {
	index, err := os.ReadFile(filepath.Join(c.dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = c.addFile(singleFile)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("neither %s nor %s is there", singleFile, indexFile)
		}
		return err
	}
	if err != nil {
		return err
	}
	wanted, err := parseIndex(index)
	if err != nil {
		return fmt.Errorf("read %s: %w", indexFile, err)
	}
	for _, file := range sortedKeys(wanted) {
		if err := c.addFile(file); err != nil {
			return fmt.Errorf("open shard %s named by %s: %w", file, indexFile, err)
		}
		for _, name := range wanted[file] {
			if !c.holds(file, name) {
				return fmt.Errorf("%s says tensor %s is in %s, which does not hold it", indexFile, name, file)
			}
		}
	}
	return nil
}

// holds says whether a file that was added stores the tensor; the vision tower is not kept track of.
func (c *Checkpoint) holds(file, name string) bool {
	released, vision := canonical(name)
	s := c.tensors[released]
	return vision || s != nil && s.file == file && s.name == name
}

// parseIndex returns the tensors of each shard. A shard's name must stay inside the folder.
func parseIndex(data []byte) (map[string][]string, error) {
	var weightMap json.RawMessage
	err := members(data, func(key string, value json.RawMessage) error {
		if key == "weight_map" {
			weightMap = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	wanted := map[string][]string{}
	err = members(weightMap, func(tensor string, value json.RawMessage) error {
		var file string
		if err := json.Unmarshal(value, &file); err != nil {
			return fmt.Errorf("file of tensor %s: %w", tensor, err)
		}
		if !filepath.IsLocal(file) || strings.ContainsAny(file, `/\`) || filepath.Ext(file) != ".safetensors" {
			return fmt.Errorf("tensor %s is said to be in %q: a shard must be a .safetensors file of the same folder", tensor, file)
		}
		wanted[file] = append(wanted[file], tensor)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("weight_map: %w", err)
	}
	return wanted, nil
}

func (c *Checkpoint) addFile(file string) error {
	data, unmap, err := mapFile(filepath.Join(c.dir, file))
	if err != nil {
		return err
	}
	c.keep(data, unmap)
	return c.add(file, data)
}

// add takes the tensors of one file under their canonical names.
func (c *Checkpoint) add(file string, data []byte) error {
	parsed, err := parseSafetensors(file, data)
	if err != nil {
		return err
	}
	for _, s := range parsed {
		name, vision := canonical(s.name)
		if vision {
			c.vision++
			continue
		}
		if other := c.tensors[name]; other != nil {
			return fmt.Errorf("tensor %s in %s and %s in %s are both %s", other.name, other.file, s.name, s.file, name)
		}
		s.canonical = name
		c.tensors[name] = s
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Config is the effective configuration. It must not be changed.
func (c *Checkpoint) Config() *Config { return c.config }

// Name is the folder's name, or the one given to OpenBytes.
func (c *Checkpoint) Name() string { return c.name }

// Dir is the folder as given to Open, empty for a checkpoint in memory.
func (c *Checkpoint) Dir() string { return c.dir }

// Has says whether a tensor is stored under the canonical name, given with or without ".weight".
func (c *Checkpoint) Has(name string) bool { return c.find(name) != nil }

// HasMTP says whether the checkpoint holds the draft head that its config speaks of.
func (c *Checkpoint) HasMTP() bool { return c.config.MTPLayers > 0 }

// find returns the tensor called name or name.weight, nil without one.
func (c *Checkpoint) find(name string) *stored {
	if s := c.tensors[name+".weight"]; s != nil {
		return s
	}
	return c.tensors[name]
}

// Findings lists the conventions that were found, in a fixed order.
func (c *Checkpoint) Findings() []Finding { return slices.Clone(c.findings) }

// Tensors lists everything that the network reads, by canonical name; experts and table shards as stored. The rows
// of a packed n-gram table are records, so they are not among them: see Packed.
func (c *Checkpoint) Tensors() []Tensor { return slices.Clone(c.list) }

// Digest names the weights by their content, in hex: the SHA-256 over the canonical name, type, shape and
// SHA-256 of the stored bytes of every tensor that the network reads, over how norms are read, and over the
// multipliers in force. The first call reads the whole checkpoint on all cores; later ones return its result. Of a
// packed store it reads the dense part, checks it, and takes the rest from the manifest; the error is ErrDamaged and
// names the tensor. A store that keeps its source's precision has the source's digest.
func (c *Checkpoint) Digest() (string, error) { return c.digest() }

// Close ends the mappings. Every Tensor of the checkpoint is invalid afterwards. Closing twice is harmless.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, unmap := range c.closers {
		errs = append(errs, unmap())
	}
	c.closers, c.maps = nil, nil
	return errors.Join(errs...)
}
