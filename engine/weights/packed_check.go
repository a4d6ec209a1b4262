package weights

import (
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"slices"
)

// maxPacked bounds sizes and offsets, so that sums of them stay within 64 bits.
const maxPacked = int64(1) << 56

// check holds the rules that the manifest alone can tell.
func (m *PackedManifest) check() error {
	for _, f := range slices.Concat(m.Files, m.Data) {
		if f.Bytes < 0 || f.Bytes > maxPacked || f.Name != filepath.Base(f.Name) || !filepath.IsLocal(f.Name) {
			return fmt.Errorf("file %q of %d bytes is none of a store", f.Name, f.Bytes)
		}
	}
	for _, f := range m.Files {
		if err := checkHex("file "+f.Name, f.SHA256); err != nil {
			return err
		}
	}
	size := map[string]int64{}
	for _, name := range []string{PackedDenseFile, PackedExpertsFile, PackedNgramFile} {
		f, ok := file(m.Data, name)
		if !ok {
			return fmt.Errorf("data file %s is missing", name)
		}
		size[name] = f.Bytes
	}
	if err := m.checkDense(size[PackedDenseFile]); err != nil {
		return err
	}
	if err := m.checkExperts(size[PackedExpertsFile]); err != nil {
		return err
	}
	if err := m.checkNgram(size[PackedNgramFile]); err != nil {
		return err
	}
	for _, d := range m.Stacks {
		if err := d.check(); err != nil {
			return err
		}
	}
	return nil
}

// checkHex makes sure that a digest is one.
func checkHex(section, digest string) error {
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != 32 {
		return fmt.Errorf("%s: digest %.80q is no SHA-256", section, digest)
	}
	return nil
}

// bytes is the length that type and shape give.
func (d PackedDigest) bytes() (int64, error) {
	width := int64(d.DType.bits())
	n := int64(1)
	for _, s := range d.Shape {
		if s < 0 || s > 0 && n > maxPacked/64/int64(s) {
			return 0, fmt.Errorf("tensor %s: shape %v", d.Name, d.Shape)
		}
		n *= int64(s)
	}
	if width == 0 || n*width%8 != 0 {
		return 0, fmt.Errorf("tensor %s: type %q of shape %v", d.Name, d.DType, d.Shape)
	}
	return n * width / 8, nil
}

func (d PackedDigest) check() error {
	if _, err := d.bytes(); err != nil {
		return err
	}
	return checkHex("tensor "+d.Name, d.SHA256)
}

// span is a section's place.
type span struct {
	section       string
	offset, bytes int64
}

// follows makes sure that a section starts at or after the end of the one before and ends within the file.
func (s span) follows(end, size int64) error {
	if s.offset < end || s.bytes < 0 || s.offset > maxPacked || s.bytes > maxPacked || s.offset+s.bytes > size {
		return fmt.Errorf("%s: bytes [%d, %d) do not lie between %d and the file's end at %d", s.section, s.offset, s.offset+s.bytes, end, size)
	}
	return nil
}

func (m *PackedManifest) checkDense(size int64) error {
	end := int64(0)
	for _, t := range m.Dense {
		if err := t.check(); err != nil {
			return err
		}
		want, _ := t.bytes()
		if t.Bytes != want || t.Offset%PackedAlign != 0 {
			return fmt.Errorf("tensor %s: %d bytes at %d, %s %v takes %d", t.Name, t.Bytes, t.Offset, t.DType, t.Shape, want)
		}
		if err := (span{"tensor " + t.Name, t.Offset, t.Bytes}).follows(end, size); err != nil {
			return err
		}
		end = t.Offset + t.Bytes
	}
	return nil
}

func (m *PackedManifest) checkExperts(size int64) error {
	end := int64(0)
	for i := range m.Experts {
		l := &m.Experts[i]
		if err := l.check(); err != nil {
			return fmt.Errorf("experts of %s: %w", l.Layer, err)
		}
		if err := (span{"experts of " + l.Layer, l.Offset, int64(l.N) * l.Stride}).follows(end, size); err != nil {
			return err
		}
		end = l.Offset + int64(l.N)*l.Stride
	}
	return nil
}

func (l *PackedLayer) check() error {
	dims := []int{l.N, l.Inner, l.Hidden}
	if slices.Min(dims) < 1 || l.N > maxCount || max(l.Inner, l.Hidden) > maxWidth {
		return fmt.Errorf("%d experts of %d by %d", l.N, l.Inner, l.Hidden)
	}
	if len(l.SHA256) != l.N || len(l.CRC) != l.N || len(l.Format) != 0 && len(l.Format) != l.N || len(l.Formats) == 0 {
		return fmt.Errorf("%d digests, %d checksums and %d formats for %d records", len(l.SHA256), len(l.CRC), len(l.Format), l.N)
	}
	if l.Offset%PackedPage != 0 || l.Stride%PackedPage != 0 || l.Stride <= 0 || l.Stride > maxPacked/maxCount {
		return fmt.Errorf("records at %d, %d apart: not multiples of %d", l.Offset, l.Stride, PackedPage)
	}
	for _, f := range l.Formats {
		for i, m := range f {
			if err := m.check([]int{l.Hidden, l.Hidden, l.Inner}[i]); err != nil {
				return err
			}
		}
		if _, bytes := f.Arrays(l.Inner, l.Hidden); bytes > l.Stride {
			return fmt.Errorf("a record takes %d bytes, they are %d apart", bytes, l.Stride)
		}
	}
	for e, f := range l.Format {
		if f < 0 || f >= len(l.Formats) {
			return fmt.Errorf("record %d has format %d of %d", e, f, len(l.Formats))
		}
	}
	for e, d := range l.SHA256 {
		if err := checkHex(fmt.Sprintf("record %d", e), d); err != nil {
			return err
		}
	}
	return nil
}

func (m *PackedManifest) checkNgram(size int64) error {
	end := int64(0)
	for i := range m.Ngram {
		t := &m.Ngram[i]
		if err := t.check(); err != nil {
			return fmt.Errorf("n-gram table of %s: %w", t.Layer, err)
		}
		bytes := int64(t.Shards) * int64(t.Rows) * int64(t.RowBytes)
		if err := (span{"n-gram table of " + t.Layer, t.Offset, bytes}).follows(end, size); err != nil {
			return err
		}
		end = t.Offset + bytes
	}
	return nil
}

func (t *PackedTable) check() error {
	dims := []int{t.Shards, t.Rows, t.Dim, t.BlockRows, t.RowBytes}
	if slices.Min(dims) < 1 || t.Shards > maxCount || t.Rows > math.MaxInt32 || t.Dim > maxWidth || t.RowBytes > 8*maxWidth ||
		int64(t.Shards)*int64(t.Rows) > maxPacked/int64(t.RowBytes) {
		return fmt.Errorf("%d shards of %d rows of %d values in %d bytes", t.Shards, t.Rows, t.Dim, t.RowBytes)
	}
	if len(t.Formats) != 1 && len(t.Formats) != t.Shards || len(t.SHA256) != t.Shards {
		return fmt.Errorf("%d formats and digests of %d shards for %d shards", len(t.Formats), len(t.SHA256), t.Shards)
	}
	for _, m := range t.Formats {
		if err := m.check(t.Dim); err != nil {
			return err
		}
	}
	if want := NgramRowBytes(t.Formats, t.Dim); t.RowBytes != want {
		return fmt.Errorf("rows of %d bytes: their formats take %d", t.RowBytes, want)
	}
	for s, list := range t.SHA256 {
		if len(list) != (t.Rows-1)/t.BlockRows+1 {
			return fmt.Errorf("shard %d: %d digests for %d rows in blocks of %d", s, len(list), t.Rows, t.BlockRows)
		}
		for b, d := range list {
			if err := checkHex(fmt.Sprintf("shard %d, block %d", s, b), d); err != nil {
				return err
			}
		}
	}
	return nil
}
