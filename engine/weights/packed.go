package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Packed is an open packed store: where records and rows lie, and how to read them once they are in memory. It
// reads no weights by itself. Its methods may be called from any goroutine until Close.
type Packed struct {
	dir      string
	manifest *PackedManifest
	experts  *os.File
	ngram    *os.File
	arrays   [][][9]PackedArray // by layer and format
	bytes    [][]int64          // the same: length of a record
	largest  []int              // by layer: length of its longest record
}

// IsPacked says whether a folder holds a packed store. Without its manifest it is none, whatever else is there.
func IsPacked(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, PackedManifestFile))
	return err == nil
}

// unfinished says whether a folder holds what a run of the packer left that did not come to its end.
func unfinished(dir string) bool {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	return there(PackedDenseFile) && !there(singleFile) && !there(indexFile)
}

func errUnfinished() error {
	return fmt.Errorf("%s is missing: the store was not packed to its end; run lector model pack again", PackedManifestFile)
}

// OpenPacked opens the packed store in a folder: it reads the manifest, checks that every file has the length that
// it should, and opens experts.bin and ngram.bin for reading. It checks no data; see VerifyRecord and NgramRow.
func OpenPacked(dir string) (*Packed, error) {
	p := &Packed{dir: dir}
	if err := p.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open packed store %s: %w", dir, err), p.Close())
	}
	return p, nil
}

func (p *Packed) open() error {
	text, err := os.ReadFile(filepath.Join(p.dir, PackedManifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return errUnfinished()
	}
	if err != nil {
		return err
	}
	if p.manifest, err = ParsePacked(text); err != nil {
		return err
	}
	for _, list := range [][]PackedFile{p.manifest.Files, p.manifest.Data} {
		for _, f := range list {
			if err := f.checkLength(p.dir); err != nil {
				return err
			}
		}
	}
	if p.experts, err = os.Open(filepath.Join(p.dir, PackedExpertsFile)); err != nil {
		return err
	}
	if p.ngram, err = os.Open(filepath.Join(p.dir, PackedNgramFile)); err != nil {
		return err
	}
	p.layOut()
	return nil
}

// checkLength tells a file that is cut short or missing from a whole one.
func (f PackedFile) checkLength(dir string) error {
	info, err := os.Stat(filepath.Join(dir, f.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing: it should have %d bytes", f.Name, f.Bytes)
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != f.Bytes {
		return fmt.Errorf("%s has %d bytes, it should have %d: it is damaged or of another store", f.Name, info.Size(), f.Bytes)
	}
	return nil
}

// layOut computes the arrays of every record format once.
func (p *Packed) layOut() {
	for i := range p.manifest.Experts {
		l := &p.manifest.Experts[i]
		var arrays [][9]PackedArray
		var bytes []int64
		largest := int64(0)
		for _, f := range l.Formats {
			a, n := f.Arrays(l.Inner, l.Hidden)
			arrays, bytes, largest = append(arrays, a), append(bytes, n), max(largest, n)
		}
		p.arrays, p.bytes, p.largest = append(p.arrays, arrays), append(p.bytes, bytes), append(p.largest, int(largest))
	}
}

// Close closes the files. Views of records that the caller read stay valid.
func (p *Packed) Close() error {
	var errs []error
	for _, f := range []*os.File{p.experts, p.ngram} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	p.experts, p.ngram = nil, nil
	return errors.Join(errs...)
}

// Dir is the store's folder as given to OpenPacked.
func (p *Packed) Dir() string { return p.dir }

// Manifest describes the store. It must not be changed.
func (p *Packed) Manifest() *PackedManifest { return p.manifest }

// Layers counts the layers with experts: decoder layers in order, then the draft head's where there is one.
func (p *Packed) Layers() int { return len(p.manifest.Experts) }

// LayerIndex finds a layer by the name that Checkpoint.Experts takes, -1 without one.
func (p *Packed) LayerIndex(layer string) int {
	for i := range p.manifest.Experts {
		if p.manifest.Experts[i].Layer == layer {
			return i
		}
	}
	return -1
}

// Experts counts the records of a layer.
func (p *Packed) Experts(layer int) int { return p.manifest.Experts[layer].N }

// RecordBytes is the length of the layer's longest record, without padding: a read of so many bytes at a record's
// offset always holds the whole record. Records differ only where precisions within the layer do.
func (p *Packed) RecordBytes(layer int) int { return p.largest[layer] }

// ExpertBytes is the length of one record, without padding.
func (p *Packed) ExpertBytes(layer, expert int) int {
	return int(p.bytes[layer][p.manifest.Experts[layer].format(expert)])
}

func (l *PackedLayer) format(expert int) int {
	if len(l.Format) == 0 {
		return 0
	}
	return l.Format[expert]
}

// RecordStride is the distance of a layer's records in bytes, a multiple of PackedPage. A read of the whole stride
// stays within the file.
func (p *Packed) RecordStride(layer int) int64 { return p.manifest.Experts[layer].Stride }

// RecordOffset is where a record starts in experts.bin, a multiple of PackedPage.
func (p *Packed) RecordOffset(layer, expert int) int64 {
	l := &p.manifest.Experts[layer]
	return l.Offset + int64(expert)*l.Stride
}

// ExpertsFile is experts.bin, open for positioned reads. Its Name is the path, for those who open it again with
// other flags. It belongs to the store.
func (p *Packed) ExpertsFile() *os.File { return p.experts }

// Expert returns the views of a record that was read: gate and up [Inner, Hidden], down [Hidden, Inner]. record
// starts at the record's offset and holds at least ExpertBytes; the views are of it.
func (p *Packed) Expert(layer, expert int, record []byte) (gate, up, down Tensor, err error) {
	record, err = p.record(layer, expert, record)
	if err != nil {
		return gate, up, down, err
	}
	l := &p.manifest.Experts[layer]
	f := l.format(expert)
	var parts [3]Tensor
	for i, name := range []string{"gate_proj", "up_proj", "down_proj"} {
		shape := []int{l.Inner, l.Hidden}
		if i == 2 {
			shape = []int{l.Hidden, l.Inner}
		}
		parts[i] = l.Formats[f][i].view(record, p.arrays[layer][f][3*i:3*i+3], shape)
		parts[i].Name = fmt.Sprintf("%s.mlp.experts.%d.%s.weight", l.Layer, expert, name)
		parts[i].Stored = PackedExpertsFile
	}
	return parts[0], parts[1], parts[2], nil
}

// record checks the indexes and cuts the record to its length.
func (p *Packed) record(layer, expert int, record []byte) ([]byte, error) {
	if layer < 0 || layer >= p.Layers() || expert < 0 || expert >= p.manifest.Experts[layer].N {
		return nil, fmt.Errorf("expert %d of layer %d: the store %s has none", expert, layer, p.dir)
	}
	n := p.ExpertBytes(layer, expert)
	if len(record) < n {
		return nil, fmt.Errorf("%s: %d bytes were read, the record has %d", p.recordName(layer, expert), len(record), n)
	}
	return record[:n:n], nil
}

// recordName is what errors call a record.
func (p *Packed) recordName(layer, expert int) string {
	return fmt.Sprintf("record of expert %d of %s in %s", expert, p.manifest.Experts[layer].Layer, filepath.Join(p.dir, PackedExpertsFile))
}

// view cuts a matrix out of a record.
func (m PackedMatrix) view(record []byte, arrays []PackedArray, shape []int) Tensor {
	cut := func(a PackedArray) []byte { return record[a.Offset : a.Offset+a.Bytes : a.Offset+a.Bytes] }
	t := Tensor{DType: m.DType, Shape: shape, Data: cut(arrays[0])}
	if m.DType == U32 {
		t.Quant = &Quant{Bits: m.Bits, Group: m.Group, Side: m.Side, Scales: cut(arrays[1]), Biases: cut(arrays[2])}
	}
	return t
}

// ErrDamaged says that stored bytes are not those that were packed. The error around it names the section.
var ErrDamaged = errors.New("stored bytes are damaged")

// VerifyRecord checks a record that was read against its CRC32C in the manifest, which costs little beside the
// read. The error is ErrDamaged and names the record. record is as for Expert.
func (p *Packed) VerifyRecord(layer, expert int, record []byte) error {
	record, err := p.record(layer, expert, record)
	if err != nil {
		return err
	}
	if got, want := RecordCRC(record), p.manifest.Experts[layer].CRC[expert]; got != want {
		return fmt.Errorf("%s: CRC32C is %08x, packed was %08x: %w; run lector model verify", p.recordName(layer, expert), got, want, ErrDamaged)
	}
	return nil
}

// NgramTables counts the n-gram tables, one for each PLE layer.
func (p *Packed) NgramTables() int { return len(p.manifest.Ngram) }

// NgramRows counts the rows of the l-th PLE layer's table.
func (p *Packed) NgramRows(l int) int64 {
	return int64(p.manifest.Ngram[l].Shards) * int64(p.manifest.Ngram[l].Rows)
}

// NgramRowBytes is the length of a row's record in ngram.bin, its checksum included, and the distance of rows.
func (p *Packed) NgramRowBytes(l int) int { return p.manifest.Ngram[l].RowBytes }

// NgramRowOffset is where a row's record starts in ngram.bin. It is not aligned.
func (p *Packed) NgramRowOffset(l int, row int64) int64 {
	return p.manifest.Ngram[l].Offset + row*int64(p.manifest.Ngram[l].RowBytes)
}

// NgramFile is ngram.bin, open for positioned reads. It belongs to the store.
func (p *Packed) NgramFile() *os.File { return p.ngram }

// NgramFormat is the precision that a row is stored in; most tables have one for all.
func (p *Packed) NgramFormat(l int, row int64) PackedMatrix {
	t := &p.manifest.Ngram[l]
	if len(t.Formats) == 1 {
		return t.Formats[0]
	}
	return t.Formats[row/int64(t.Rows)]
}

// NgramRow checks a row's record that was read and returns it as a tensor [1, dim] of views. record holds at
// least NgramRowBytes. The error of a wrong checksum is ErrDamaged and names the row.
func (p *Packed) NgramRow(l int, row int64, record []byte) (Tensor, error) {
	if l < 0 || l >= len(p.manifest.Ngram) || row < 0 || row >= p.NgramRows(l) {
		return Tensor{}, fmt.Errorf("row %d of n-gram table %d: the store %s has none", row, l, p.dir)
	}
	t := &p.manifest.Ngram[l]
	if len(record) < t.RowBytes {
		return Tensor{}, fmt.Errorf("row %d of the n-gram table of %s: %d bytes were read, a row has %d", row, t.Layer, len(record), t.RowBytes)
	}
	data := record[:t.RowBytes-rowCheck]
	if got, want := RowCRC(row, data), binary.LittleEndian.Uint32(record[t.RowBytes-rowCheck:]); got != want {
		return Tensor{}, fmt.Errorf("row %d of the n-gram table of %s in %s: CRC32C is %08x, packed was %08x: %w; run lector model verify",
			row, t.Layer, filepath.Join(p.dir, PackedNgramFile), got, want, ErrDamaged)
	}
	m := p.NgramFormat(l, row)
	codes, side := m.RowBytes(t.Dim)
	arrays := []PackedArray{{0, int64(codes)}, {int64(codes), int64(side)}, {int64(codes + side), int64(side)}}
	tensor := m.view(data, arrays, []int{1, t.Dim})
	tensor.Name, tensor.Stored = embedding(t.Layer)+"ngram_embedding", PackedNgramFile
	return tensor, nil
}

// MemoryFloor is the least memory in bytes that the weights of the store need while it runs: the dense part, a
// ring of two groups of eight records, and one gathered position of n-gram rows. State, scratch and a resident
// pool come on top.
func (p *Packed) MemoryFloor() int64 {
	dense, _ := file(p.manifest.Data, PackedDenseFile)
	slot := int64(0)
	for i := range p.manifest.Experts {
		slot = max(slot, p.manifest.Experts[i].Stride)
	}
	row := 0
	for i := range p.manifest.Ngram {
		row = max(row, p.manifest.Ngram[i].RowBytes)
	}
	return dense.Bytes + 16*slot + int64(row)
}
