package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// maxAssembled is the largest n-gram table that is copied into memory out of its records.
const maxAssembled = int64(2) << 30

// Packed is the packed store behind the checkpoint, nil for a plain one. It lives until Close.
func (c *Checkpoint) Packed() *Packed { return c.packed }

// openPacked opens a packed store as a checkpoint: the dense part and the records are mapped, conventions come from
// the manifest, since they were settled when it was written.
func (c *Checkpoint) openPacked() error {
	p, err := OpenPacked(c.dir)
	if err != nil {
		return err
	}
	c.packed = p
	c.closers = append(c.closers, p.Close)
	config, err := p.copied("config.json")
	if err != nil {
		return err
	}
	generation, err := p.copied("generation_config.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := c.configure(config, generation); err != nil {
		return err
	}
	c.quant = quantConfig{} // of the source; the manifest says how sections are stored
	if err := c.addDense(p.manifest.Dense); err != nil {
		return err
	}
	records, unmap, err := mapFile(filepath.Join(c.dir, PackedExpertsFile))
	if err != nil {
		return err
	}
	c.records = records
	c.keep(records, unmap)
	return c.verify()
}

// copied reads a small file of the store and checks its digest. A file that the store does not have is ErrNotExist.
func (p *Packed) copied(name string) ([]byte, error) {
	f, ok := file(p.manifest.Files, name)
	if !ok {
		return nil, fmt.Errorf("%s is none of the store's files: %w", name, fs.ErrNotExist)
	}
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != f.SHA256 {
		return nil, fmt.Errorf("%s is not the file that was packed: %w", name, ErrDamaged)
	}
	return data, nil
}

// addDense maps dense.bin and names its sections.
func (c *Checkpoint) addDense(sections []PackedTensor) error {
	data, unmap, err := mapFile(filepath.Join(c.dir, PackedDenseFile))
	if err != nil {
		return err
	}
	c.keep(data, unmap)
	for _, t := range sections {
		if t.Offset+t.Bytes > int64(len(data)) {
			return fmt.Errorf("%s has %d bytes: tensor %s ends at %d", PackedDenseFile, len(data), t.Name, t.Offset+t.Bytes)
		}
		s := &stored{name: t.Name, file: PackedDenseFile, dtype: t.DType, shape: t.Shape, sum: t.SHA256}
		s.data = data[t.Offset : t.Offset+t.Bytes : t.Offset+t.Bytes]
		s.canonical, _ = canonical(t.Name)
		if c.tensors[s.canonical] != nil {
			return fmt.Errorf("tensor %s is packed twice", s.canonical)
		}
		c.tensors[s.canonical] = s
	}
	return nil
}

// packedExperts are views of the mapped records of a layer.
func (c *Checkpoint) packedExperts(layer string, n, inner, hidden int) (*Experts, *collection, error) {
	got := &collection{c: c}
	e := &Experts{N: n, Inner: inner, Hidden: hidden, records: make([][3]Tensor, n)}
	at := c.packed.LayerIndex(layer)
	if at < 0 {
		got.err = fmt.Errorf("experts of %s are missing in %s", layer, PackedManifestFile)
		return e, got, got.err
	}
	if l := &c.packed.manifest.Experts[at]; l.N != n || l.Inner != inner || l.Hidden != hidden {
		got.err = fmt.Errorf("experts of %s: %d of %d by %d are packed, the config calls for %d of %d by %d",
			layer, l.N, l.Inner, l.Hidden, n, inner, hidden)
		return e, got, got.err
	}
	for i := range n {
		offset := c.packed.RecordOffset(at, i)
		gate, up, down, err := c.packed.Expert(at, i, c.records[offset:offset+c.packed.RecordStride(at)])
		if err != nil {
			got.err = err
			return e, got, err
		}
		e.records[i] = [3]Tensor{gate, up, down}
		got.list = append(got.list, gate, up, down)
	}
	return e, got, nil
}

// packedTable checks that a layer's table is packed as the config calls for, and returns its index.
func (c *Checkpoint) packedTable(layer string, shards, rows, dim int) (int, error) {
	for l := range c.packed.manifest.Ngram {
		t := &c.packed.manifest.Ngram[l]
		if t.Layer != layer {
			continue
		}
		if t.Shards != shards || shards*t.Rows != rows || t.Dim != dim {
			return 0, fmt.Errorf("n-gram table of %s: %d shards of %d rows of %d values are packed, the config calls for %d of %d of %d",
				layer, t.Shards, t.Rows, t.Dim, shards, rows/shards, dim)
		}
		return l, nil
	}
	return 0, fmt.Errorf("n-gram table of %s is missing in %s", layer, PackedManifestFile)
}

// assemble copies a table out of its records, row by row checked, for callers that want it whole: tests and small
// models. The engine reads rows as it needs them.
func (c *Checkpoint) assemble(l int) ([]Tensor, error) {
	t := &c.packed.manifest.Ngram[l]
	total := c.packed.NgramRows(l) * int64(t.RowBytes)
	if total > maxAssembled {
		return nil, fmt.Errorf("the n-gram table of %s takes %d bytes: more than %d are not copied into memory; read its rows one by one", t.Layer, total, maxAssembled)
	}
	shards := make([]Tensor, t.Shards)
	buffer := make([]byte, min(t.BlockRows, t.Rows)*t.RowBytes)
	for s := range shards {
		shards[s] = t.empty(s, c.packed.NgramFormat(l, int64(s*t.Rows)))
		for row := 0; row < t.Rows; row += t.BlockRows {
			first := int64(s*t.Rows + row)
			block := buffer[:min(t.BlockRows, t.Rows-row)*t.RowBytes]
			if _, err := io.ReadFull(io.NewSectionReader(c.packed.ngram, c.packed.NgramRowOffset(l, first), int64(len(block))), block); err != nil {
				return nil, fmt.Errorf("read row %d of the n-gram table of %s: %w", first, t.Layer, err)
			}
			for i := 0; len(block) > 0; i, block = i+1, block[t.RowBytes:] {
				r, err := c.packed.NgramRow(l, first+int64(i), block)
				if err != nil {
					return nil, err
				}
				shards[s].appendRow(r)
			}
		}
	}
	return shards, nil
}

// empty is shard s before its rows are there.
func (t *PackedTable) empty(s int, m PackedMatrix) Tensor {
	codes, side := m.RowBytes(t.Dim)
	shard := Tensor{
		Name:  fmt.Sprintf("%sngram_embedding.shard_%d.weight", embedding(t.Layer), s),
		DType: m.DType, Shape: []int{t.Rows, t.Dim}, Stored: PackedNgramFile, Data: make([]byte, 0, t.Rows*codes),
	}
	if m.DType == U32 {
		shard.Quant = &Quant{Bits: m.Bits, Group: m.Group, Side: m.Side, Scales: make([]byte, 0, t.Rows*side), Biases: make([]byte, 0, t.Rows*side)}
	}
	return shard
}

func (t *Tensor) appendRow(r Tensor) {
	t.Data = append(t.Data, r.Data...)
	if t.Quant != nil {
		t.Quant.Scales = append(t.Quant.Scales, r.Quant.Scales...)
		t.Quant.Biases = append(t.Quant.Biases, r.Quant.Biases...)
	}
}

// packedNorms takes the readings that were settled when the store was written.
func (c *Checkpoint) packedNorms(classes []string) error {
	c.norms = map[string]normReading{}
	for _, name := range classes {
		reading := normReading(c.packed.manifest.Norms[name])
		if !slices.Contains([]normReading{plain, centred, folded}, reading) {
			return fmt.Errorf("%s: norms of class %s are read as %q: it must be %q, %q or %q", PackedManifestFile, name, reading, plain, centred, folded)
		}
		c.norms[name] = reading
		c.found("norm "+name, map[normReading]string{
			plain: "plain: the stored value is the scale", centred: "zero-centred: the scale is 1 + the stored value", folded: "folded: the stored value is the scale",
		}[reading], "the packed store says so")
	}
	return nil
}

// NormReadings says how each class of norms is read: "plain" (the stored value is the scale), "centred" (1 plus it
// is) or "folded" (it is 1+w).
func (c *Checkpoint) NormReadings() map[string]string {
	readings := map[string]string{}
	for name, reading := range c.norms {
		readings[name] = string(reading)
	}
	return readings
}
