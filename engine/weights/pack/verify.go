package pack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"lector/engine/weights"
)

// maxFaults bounds how many damaged sections one report names.
const maxFaults = 16

// Checked says what a check read.
type Checked struct {
	Packed   bool
	Sections int // tensors of a plain checkpoint
	Bytes    int64
}

// Verify reads everything that a model folder holds. Of a packed store it compares every section with its digest,
// every record and row with its checksum, and the whole with what the manifest says of the source's tensors. A
// plain checkpoint must open, and every number in it must be finite. The error names the damaged sections.
func Verify(ctx context.Context, dir string, o weights.Options, progress func(done, total int64)) (Checked, error) {
	c, err := weights.OpenWith(dir, o)
	if err != nil {
		return Checked{}, err
	}
	defer c.Close()
	v := &verifier{ctx: ctx, c: c, progress: progress}
	if progress == nil {
		v.progress = func(int64, int64) {}
	}
	v.report.Packed = c.Packed() != nil
	if v.report.Packed {
		err = v.packed(c.Packed(), dir)
	} else {
		err = v.plain()
	}
	if err = errors.Join(err, v.faults()); err != nil {
		return v.report, fmt.Errorf("verify %s: %w", dir, err)
	}
	return v.report, nil
}

// verifier reads sections one after another and gathers what is wrong with them.
type verifier struct {
	ctx      context.Context
	c        *weights.Checkpoint
	progress func(done, total int64)
	report   Checked
	total    int64
	errs     []error
	more     int
	buffer   []byte
}

// fault notes a damaged section and lets the check go on.
func (v *verifier) fault(err error) {
	if len(v.errs) < maxFaults {
		v.errs = append(v.errs, err)
	} else {
		v.more++
	}
}

func (v *verifier) faults() error {
	if v.more > 0 {
		v.errs = append(v.errs, fmt.Errorf("and %d more", v.more))
	}
	return errors.Join(v.errs...)
}

// passed counts a section that was read.
func (v *verifier) passed(bytes int64) error {
	v.report.Sections++
	v.report.Bytes += bytes
	v.progress(v.report.Bytes, v.total)
	return v.ctx.Err()
}

// packed checks a store in the order of its files.
func (v *verifier) packed(p *weights.Packed, dir string) error {
	m := p.Manifest()
	for _, f := range m.Data {
		v.total += f.Bytes
	}
	dense, err := os.Open(filepath.Join(dir, weights.PackedDenseFile))
	if err != nil {
		return err
	}
	defer dense.Close()
	if err := v.files(dir, m.Files); err != nil {
		return err
	}
	for _, t := range m.Dense {
		sum, err := v.hash(dense, t.Offset, t.Bytes)
		if err != nil {
			return fmt.Errorf("tensor %s in %s: %w", t.Name, weights.PackedDenseFile, err)
		}
		v.compare("tensor "+t.Name+" in "+weights.PackedDenseFile, sum, t.SHA256)
		if err := v.passed(t.Bytes); err != nil {
			return err
		}
	}
	s := newStacks()
	s.add(m.Stacks)
	if err := v.records(p, s); err != nil {
		return err
	}
	if err := v.tables(p, s); err != nil {
		return err
	}
	if len(v.errs) == 0 { // else a damaged section would be told twice
		v.stacks(s, m.Stacks)
	}
	return nil
}

// files checks what was copied beside the data.
func (v *verifier) files(dir string, list []weights.PackedFile) error {
	for _, f := range list {
		data, err := os.ReadFile(filepath.Join(dir, f.Name))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		v.compare("file "+f.Name, hex.EncodeToString(sum[:]), f.SHA256)
	}
	return nil
}

func (v *verifier) compare(section, got, want string) {
	if got != want {
		v.fault(fmt.Errorf("%s: SHA-256 is %s, packed was %s: %w", section, got, want, weights.ErrDamaged))
	}
}

// hash reads a section in small steps.
func (v *verifier) hash(f io.ReaderAt, offset, bytes int64) (string, error) {
	h := sha256.New()
	for bytes > 0 {
		chunk := v.room(int(min(bytes, chunkBytes)))
		if err := readAt(f, chunk, offset); err != nil {
			return "", err
		}
		h.Write(chunk)
		offset, bytes = offset+int64(len(chunk)), bytes-int64(len(chunk))
		if err := v.ctx.Err(); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// readAt fills dst or says why it cannot.
func readAt(f io.ReaderAt, dst []byte, offset int64) error {
	if n, err := f.ReadAt(dst, offset); n < len(dst) {
		return fmt.Errorf("read %d bytes at %d: %d came: %w", len(dst), offset, n, err)
	}
	return nil
}

func (v *verifier) room(bytes int) []byte {
	if cap(v.buffer) < bytes {
		v.buffer = make([]byte, bytes)
	}
	return v.buffer[:bytes]
}

// records checks every expert record.
func (v *verifier) records(p *weights.Packed, s *stacks) error {
	for i := range p.Manifest().Experts {
		l := &p.Manifest().Experts[i]
		hashes := s.layer(l.Layer, l.N)
		for e := range l.N {
			record := v.room(p.ExpertBytes(i, e))
			name := fmt.Sprintf("record of expert %d of %s in %s", e, l.Layer, weights.PackedExpertsFile)
			if err := readAt(p.ExpertsFile(), record, p.RecordOffset(i, e)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			sum := sha256.Sum256(record)
			v.compare(name, hex.EncodeToString(sum[:]), l.SHA256[e])
			if got := weights.RecordCRC(record); got != l.CRC[e] && hex.EncodeToString(sum[:]) == l.SHA256[e] {
				v.fault(fmt.Errorf("%s: CRC32C is %08x, the manifest says %08x: %w", name, got, l.CRC[e], weights.ErrDamaged))
			}
			format := l.Formats[0]
			if len(l.Format) > 0 {
				format = l.Formats[l.Format[e]]
			}
			arrays, _ := format.Arrays(l.Inner, l.Hidden)
			hashes.feed(e, record, arrays)
			if err := v.passed(int64(len(record))); err != nil {
				return err
			}
		}
	}
	return nil
}

// tables checks every block and row of the n-gram tables.
func (v *verifier) tables(p *weights.Packed, s *stacks) error {
	for l := range p.Manifest().Ngram {
		t := &p.Manifest().Ngram[l]
		for shard := range t.Shards {
			hashes := s.shard(t.Layer, shard)
			for b, want := range t.SHA256[shard] {
				from := b * t.BlockRows
				rows := min(t.BlockRows, t.Rows-from)
				first := int64(shard)*int64(t.Rows) + int64(from)
				name := fmt.Sprintf("rows %d to %d of the n-gram table of %s in %s", first, first+int64(rows), t.Layer, weights.PackedNgramFile)
				block := v.room(rows * t.RowBytes)
				if err := readAt(p.NgramFile(), block, p.NgramRowOffset(l, first)); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				sum := sha256.Sum256(block)
				v.compare(name, hex.EncodeToString(sum[:]), want)
				for r := range rows {
					if _, err := p.NgramRow(l, first+int64(r), block[r*t.RowBytes:]); err != nil {
						v.fault(err)
						break // the block is named; its other rows say no more
					}
				}
				hashes.feedRows(block, t.RowBytes, p.NgramFormat(l, first), t.Dim)
				if err := v.passed(int64(len(block))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// stacks compares what records add up to with the tensors that the manifest names.
func (v *verifier) stacks(s *stacks, want []weights.PackedDigest) {
	said := map[string]string{}
	for _, d := range want {
		said[d.Name] = d.SHA256
	}
	for _, d := range s.digests() {
		v.compare("tensor "+d.Name+" as its records hold it", d.SHA256, said[d.Name])
	}
}

// plain checks that every number of a plain checkpoint is finite.
func (v *verifier) plain() error {
	list := v.c.Tensors()
	for _, t := range list {
		v.total += t.Bytes()
	}
	for _, t := range list {
		name, types := t.Name, []weights.DType{t.DType}
		if t.Quant != nil {
			types = []weights.DType{"", t.Quant.Side, t.Quant.Side}
		}
		for i, data := range arraysOf(t) {
			for from := 0; from < len(data); from += chunkBytes {
				part := data[from:min(from+chunkBytes, len(data))]
				if at := notFinite(part, types[i]); at >= 0 {
					v.fault(fmt.Errorf("tensor %s: value %d is not finite", name, (from*8+at*types[i].Bits())/types[i].Bits()))
					break
				}
				v.c.Discard(part)
				if err := v.ctx.Err(); err != nil {
					return err
				}
			}
		}
		if err := v.passed(t.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// notFinite is the index of the first infinite value or NaN, -1 without one. Types without them pass.
func notFinite(data []byte, d weights.DType) int {
	width, ones := 2, uint32(0)
	switch d {
	case weights.BF16:
		ones = 0x7f80
	case weights.F16:
		ones = 0x7c00
	case weights.F32:
		width, ones = 4, 0x7f800000
	default:
		return -1
	}
	for i := 0; i+width <= len(data); i += width {
		bits := uint32(data[i]) | uint32(data[i+1])<<8
		if width == 4 {
			bits |= uint32(data[i+2])<<16 | uint32(data[i+3])<<24
		}
		if bits&ones == ones {
			return i / width
		}
	}
	return -1
}
