package weights_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lector/engine/weights"
)

// hex is a digest of the right form.
func hexDigest(i int) string { return fmt.Sprintf("%064x", i) }

// manifest is a small sound one: two dense tensors, a layer of two records in two precisions, a table of two shards.
func manifest() *weights.PackedManifest {
	plain := weights.PackedMatrix{DType: weights.BF16}
	four := weights.PackedMatrix{DType: weights.U32, Bits: 4, Group: 32, Side: weights.BF16}
	digest := func(name string, d weights.DType, shape ...int) weights.PackedDigest {
		return weights.PackedDigest{Name: name, DType: d, Shape: shape, SHA256: hexDigest(len(name))}
	}
	return &weights.PackedManifest{
		Source: weights.PackedSource{Name: "test", Digest: hexDigest(0)}, Settings: "bits=keep experts=keep group=64",
		Norms: map[string]string{"q_norm": "centred"},
		Files: []weights.PackedFile{{Name: "config.json", Bytes: 10, SHA256: hexDigest(1)}},
		Data: []weights.PackedFile{
			{Name: "dense.bin", Bytes: 16384}, {Name: "experts.bin", Bytes: 65536}, {Name: "ngram.bin", Bytes: 16384},
		},
		Dense: []weights.PackedTensor{
			{PackedDigest: digest("a", weights.BF16, 5), Offset: 0, Bytes: 10},
			{PackedDigest: digest("b", weights.I64, 3), Offset: 128, Bytes: 24},
		},
		Experts: []weights.PackedLayer{{
			Layer: "l", N: 2, Inner: 32, Hidden: 64, Offset: 32768, Stride: 16384,
			Formats: []weights.PackedRecord{{plain, plain, plain}, {four, four, plain}}, Format: []int{0, 1},
			CRC: []uint32{1, 2}, SHA256: []string{hexDigest(2), hexDigest(3)},
		}},
		Ngram: []weights.PackedTable{{
			Layer: "l", Shards: 2, Rows: 5, Dim: 32, RowBytes: 68, BlockRows: 2, Formats: []weights.PackedMatrix{plain, four},
			SHA256: [][]string{{hexDigest(4), hexDigest(5), hexDigest(6)}, {hexDigest(7), hexDigest(8), hexDigest(9)}},
		}},
		Stacks: []weights.PackedDigest{digest("s", weights.BF16, 2, 32, 64)},
	}
}

func encode(t testing.TB, m *weights.PackedManifest) []byte {
	t.Helper()
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestManifestComesBack(t *testing.T) {
	m := manifest()
	got, err := weights.ParsePacked(encode(t, m))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestManifestsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *weights.PackedManifest)
		want   string
	}{
		"file above":         {func(m *weights.PackedManifest) { m.Files[0].Name = "../config.json" }, `"../config.json"`},
		"file without name":  {func(m *weights.PackedManifest) { m.Files[0].Name = "" }, `file ""`},
		"negative length":    {func(m *weights.PackedManifest) { m.Data[0].Bytes = -1 }, "dense.bin"},
		"no data file":       {func(m *weights.PackedManifest) { m.Data = m.Data[:2] }, "ngram.bin is missing"},
		"digest of a file":   {func(m *weights.PackedManifest) { m.Files[0].SHA256 = "12" }, "config.json"},
		"digest of a tensor": {func(m *weights.PackedManifest) { m.Dense[1].SHA256 = strings.Repeat("g", 64) }, "tensor b"},
		"digest of a stack":  {func(m *weights.PackedManifest) { m.Stacks[0].SHA256 = "" }, "tensor s"},
		"unaligned tensor":   {func(m *weights.PackedManifest) { m.Dense[1].Offset = 64 }, "tensor b"},
		"overlap":            {func(m *weights.PackedManifest) { m.Dense[1].Offset = 0 }, "tensor b"},
		"tensor outside":     {func(m *weights.PackedManifest) { m.Dense[1].Offset = 16384 }, "tensor b"},
		"tensor before":      {func(m *weights.PackedManifest) { m.Dense[0].Offset = -128 }, "tensor a"},
		"length of a tensor": {func(m *weights.PackedManifest) { m.Dense[0].Bytes = 12 }, "tensor a"},
		"type of a tensor":   {func(m *weights.PackedManifest) { m.Dense[0].DType = "BF17" }, "tensor a"},
		"huge shape":         {func(m *weights.PackedManifest) { m.Dense[0].Shape = []int{1 << 40, 1 << 40} }, "tensor a"},
		"negative shape":     {func(m *weights.PackedManifest) { m.Stacks[0].Shape[0] = -2 }, "tensor s"},
		"no experts":         {func(m *weights.PackedManifest) { m.Experts[0].N = 0 }, "experts of l"},
		"fewer checksums":    {func(m *weights.PackedManifest) { m.Experts[0].CRC = m.Experts[0].CRC[:1] }, "experts of l"},
		"fewer formats":      {func(m *weights.PackedManifest) { m.Experts[0].Format = []int{0} }, "experts of l"},
		"no formats":         {func(m *weights.PackedManifest) { m.Experts[0].Formats = nil }, "experts of l"},
		"no such format":     {func(m *weights.PackedManifest) { m.Experts[0].Format[1] = 2 }, "record 1"},
		"negative format":    {func(m *weights.PackedManifest) { m.Experts[0].Format[1] = -1 }, "record 1"},
		"digest of a record": {func(m *weights.PackedManifest) { m.Experts[0].SHA256[1] = "x" }, "record 1"},
		"short stride":       {func(m *weights.PackedManifest) { m.Experts[0].Inner = 64 }, "they are 16384 apart"},
		"odd stride":         {func(m *weights.PackedManifest) { m.Experts[0].Stride = 16383 }, "not multiples"},
		"records outside":    {func(m *weights.PackedManifest) { m.Experts[0].Offset = 49152 }, "experts of l"},
		"records before":     {func(m *weights.PackedManifest) { m.Experts[0].Offset = -16384 }, "experts of l"},
		"five bits":          {func(m *weights.PackedManifest) { m.Experts[0].Formats[1][0].Bits = 5 }, "5 bits"},
		"group beside rows":  {func(m *weights.PackedManifest) { m.Experts[0].Formats[1][0].Group = 128 }, "groups of 128"},
		"codes of scales":    {func(m *weights.PackedManifest) { m.Experts[0].Formats[1][0].Side = weights.U8 }, "U8 scales"},
		"plain with bits":    {func(m *weights.PackedManifest) { m.Experts[0].Formats[0][0].Bits = 4 }, "BF16 with 4 bits"},
		"row length":         {func(m *weights.PackedManifest) { m.Ngram[0].RowBytes = 64 }, "rows of 64 bytes"},
		"rows outside":       {func(m *weights.PackedManifest) { m.Ngram[0].Offset = 16000 }, "n-gram table of l"},
		"no rows":            {func(m *weights.PackedManifest) { m.Ngram[0].Rows = 0 }, "n-gram table of l"},
		"no blocks":          {func(m *weights.PackedManifest) { m.Ngram[0].BlockRows = 0 }, "n-gram table of l"},
		"fewer blocks":       {func(m *weights.PackedManifest) { m.Ngram[0].BlockRows = 3 }, "3 digests for 5 rows"},
		"shards of formats":  {func(m *weights.PackedManifest) { m.Ngram[0].Shards = 3 }, "n-gram table of l"},
	} {
		m := manifest()
		c.change(m)
		if _, err := weights.ParsePacked(encode(t, m)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %q", name, err, c.want)
		}
	}
}

// Every flipped byte of a manifest is noticed: its digest covers the store, and the rest is fixed.
func TestEveryByteOfTheManifestCounts(t *testing.T) {
	text := encode(t, manifest())
	for i := range len(text) - 1 { // the line end is nobody's
		damaged := slices.Clone(text)
		damaged[i] ^= 1
		if m, err := weights.ParsePacked(damaged); err == nil && !cmp.Equal(m, manifest()) {
			t.Errorf("byte %d: %q went unnoticed", i, text[max(0, i-20):i+1])
		}
	}
	for _, end := range []int{0, 1, 50, len(text) / 2, len(text) - 2} {
		if _, err := weights.ParsePacked(text[:end]); err == nil {
			t.Errorf("%d bytes of %d were read", end, len(text))
		}
	}
}

// Arrays of a record neither overlap nor leave it, and each is aligned.
func TestRecordLayout(t *testing.T) {
	m := manifest()
	for i, format := range m.Experts[0].Formats {
		arrays, bytes := format.Arrays(32, 64)
		end := int64(0)
		for j, a := range arrays {
			if a.Bytes == 0 {
				continue
			}
			if a.Offset < end || a.Offset%weights.PackedAlign != 0 {
				t.Errorf("format %d, array %d at %d, after %d", i, j, a.Offset, end)
			}
			end = a.Offset + a.Bytes
		}
		if end != bytes {
			t.Errorf("format %d: %d bytes, the last array ends at %d", i, bytes, end)
		}
	}
	// The released widths at 4 bits, groups of 64: no byte is lost.
	four := weights.PackedMatrix{DType: weights.U32, Bits: 4, Group: 64, Side: weights.BF16}
	if _, bytes := (weights.PackedRecord{four, four, four}).Arrays(640, 2560); bytes != 2764800 {
		t.Errorf("a released record has %d bytes", bytes)
	}
}

func FuzzPackedManifest(f *testing.F) {
	text, err := manifest().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, true)
	f.Add([]byte("{}"), false)
	if store, err := json.Marshal(manifest()); err == nil {
		f.Add(store, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		if !whole { // past the digest, into the rules
			m := &weights.PackedManifest{}
			if json.Unmarshal(data, m) != nil {
				return
			}
			var err error
			if data, err = m.Encode(); err != nil {
				return
			}
		}
		m, err := weights.ParsePacked(data)
		if err != nil {
			return
		}
		for _, l := range m.Experts { // what was accepted lies within the file
			for _, format := range l.Formats {
				if _, bytes := format.Arrays(l.Inner, l.Hidden); bytes > l.Stride {
					t.Errorf("a record of %d bytes at a stride of %d", bytes, l.Stride)
				}
			}
			if end := l.Offset + int64(l.N)*l.Stride; l.Offset < 0 || end > m.Data[1].Bytes && m.Data[1].Name == "experts.bin" {
				t.Errorf("records end at %d", end)
			}
		}
		if again, err := m.Encode(); err != nil {
			t.Error(err)
		} else if _, err := weights.ParsePacked(again); err != nil {
			t.Errorf("written again: %v", err)
		}
	})
}
