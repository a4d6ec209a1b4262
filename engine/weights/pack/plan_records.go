package pack

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"lector/engine/weights"
)

// experts lays out experts.bin: layers in order, each expert's record at a stride of whole pages.
func (p *plan) experts() (end int64, err error) {
	cfg := p.source.Config()
	for _, name := range layers(cfg) {
		stored, err := p.source.Experts(name, cfg.Experts, cfg.ExpertInner, cfg.Hidden)
		if err != nil {
			return 0, err
		}
		l := weights.PackedLayer{
			Layer: name, N: cfg.Experts, Inner: cfg.ExpertInner, Hidden: cfg.Hidden, Offset: end,
			CRC: make([]uint32, cfg.Experts), SHA256: make([]string, cfg.Experts), Format: make([]int, cfg.Experts),
		}
		formats := map[weights.PackedRecord]int{}
		for e := range cfg.Experts {
			f := p.expertFormat(stored, e)
			at, ok := formats[f]
			if !ok {
				at = len(l.Formats)
				formats[f], l.Formats = at, append(l.Formats, f)
				_, n := f.Arrays(l.Inner, l.Hidden)
				l.Stride = max(l.Stride, padded(n, weights.PackedPage))
			}
			l.Format[e] = at
		}
		if len(l.Formats) == 1 {
			l.Format = nil
		}
		p.manifest.Experts = append(p.manifest.Experts, l)
		p.expertUnits(len(p.manifest.Experts)-1, stored)
		end += int64(l.N) * l.Stride
	}
	return end, nil
}

// expertFormat is the precision that an expert's record gets.
func (p *plan) expertFormat(stored *weights.Experts, e int) weights.PackedRecord {
	gate, up, down := stored.At(e)
	return weights.PackedRecord{p.settings.expert(gate), p.settings.expert(up), p.settings.expert(down)}
}

// expertUnits makes a unit of every record of a layer.
func (p *plan) expertUnits(layer int, stored *weights.Experts) {
	l := &p.manifest.Experts[layer]
	p.stacks.add(p.expertStacks(l))
	hashes := p.stacks.layer(l.Layer, l.N)
	for e := range l.N {
		format := l.Formats[0]
		if l.Format != nil {
			format = l.Formats[l.Format[e]]
		}
		arrays, bytes := format.Arrays(l.Inner, l.Hidden)
		at := span{l.Offset + int64(e)*l.Stride, bytes}
		p.add(&unit{
			name: fmt.Sprintf("record of expert %d of %s", e, l.Layer), file: expertsFile, spans: []span{at}, checked: true,
			pieces: []piece{{
				fragments: []fragment{{0, at.offset, int(bytes)}}, bytes: int(bytes),
				build: func(dst []byte) error { return p.buildRecord(dst, stored, e, format) },
			}},
			observe: func(record []byte) { hashes.feed(e, record, arrays) },
			record: func(sums []string, crc uint32) {
				p.manifest.Experts[layer].SHA256[e], p.manifest.Experts[layer].CRC[e] = sums[0], crc
			},
		})
	}
}

// expertStacks names the experts of a layer as whole tensors: as the source stores what is kept, as MLX's stacks
// what is quantised here.
func (p *plan) expertStacks(l *weights.PackedLayer) (list []weights.PackedDigest) {
	base := l.Layer + ".mlp."
	stack := func(name string, t weights.Tensor, rows, cols int) {
		if want := p.settings.expert(t); want != weights.PackedMatrixOf(t) {
			t.Name, t.Shape = base+"switch_mlp."+name+".weight", []int{l.N, rows, cols}
			list = append(list, partsOf(t, want)...)
		} else if !slices.ContainsFunc(list, func(d weights.PackedDigest) bool { return d.Name == t.Name }) {
			list = append(list, partsOf(t, want)...)
		}
	}
	for _, t := range p.source.Tensors() {
		name, ok := strings.CutPrefix(t.Name, base)
		if !ok || isDense(t.Name) {
			continue
		}
		switch name = strings.TrimSuffix(name, ".weight"); name {
		case "experts.gate_up_proj":
			stack("gate_proj", t, l.Inner, l.Hidden)
			stack("up_proj", t, l.Inner, l.Hidden)
		case "experts.down_proj", "switch_mlp.down_proj":
			stack("down_proj", t, l.Hidden, l.Inner)
		case "switch_mlp.gate_proj", "switch_mlp.up_proj":
			stack(strings.TrimPrefix(name, "switch_mlp."), t, l.Inner, l.Hidden)
		default: // stored one by one
			list = append(list, partsOf(t, p.settings.expert(t))...)
		}
	}
	return list
}

// buildRecord fills a record: arrays at their places, zeros between.
func (p *plan) buildRecord(dst []byte, stored *weights.Experts, e int, format weights.PackedRecord) error {
	clear(dst)
	arrays, _ := format.Arrays(stored.Inner, stored.Hidden)
	gate, up, down := stored.At(e)
	for i, t := range []weights.Tensor{gate, up, down} {
		var to [3][]byte
		for j := range to {
			a := arrays[3*i+j]
			to[j] = dst[a.Offset : a.Offset+a.Bytes]
		}
		from := arraysOf(t)
		if format[i] == weights.PackedMatrixOf(t) {
			for j, data := range from {
				copy(to[j], data)
			}
		} else if err := quantiseRows(t, format[i], to[0], to[1], to[2]); err != nil {
			return err
		}
		p.source.Discard(from...)
	}
	return nil
}

// ngram lays out ngram.bin: tables one after another, rows as records with a checksum behind each.
func (p *plan) ngram() (end int64, err error) {
	cfg := p.source.Config()
	for l, i := range cfg.PLELayers {
		name := fmt.Sprintf("model.language_model.layers.%d", i)
		hash, err := p.source.Ngram(name, l)
		if err != nil {
			return 0, err
		}
		shards, err := p.source.NgramTable(name, cfg.NgramShards, int(hash.Rows), cfg.NgramDim())
		if err != nil {
			return 0, err
		}
		t := weights.PackedTable{
			Layer: name, Shards: len(shards), Rows: shards[0].Shape[0], Dim: cfg.NgramDim(), Offset: padded(end, weights.PackedPage),
		}
		widest := 1
		var stacks []weights.PackedDigest
		for _, shard := range shards {
			t.Formats = append(t.Formats, p.settings.ngram(shard))
			stacks = append(stacks, partsOf(shard, p.settings.ngram(shard))...)
			widest = max(widest, len(shard.Data)/t.Rows)
		}
		if compact := slices.Compact(slices.Clone(t.Formats)); len(compact) == 1 {
			t.Formats = compact
		}
		t.RowBytes = weights.NgramRowBytes(t.Formats, t.Dim)
		t.BlockRows = max(1, chunkBytes/max(t.RowBytes, widest))
		p.stacks.add(stacks)
		p.manifest.Ngram = append(p.manifest.Ngram, t)
		p.ngramUnits(l, shards)
		end = t.Offset + int64(t.Shards)*int64(t.Rows)*int64(t.RowBytes)
	}
	return end, nil
}

// ngramUnits makes a unit of every block of rows.
func (p *plan) ngramUnits(l int, shards []weights.Tensor) {
	t := p.manifest.Ngram[l]
	for s, shard := range shards {
		hashes := p.stacks.shard(t.Layer, s)
		format := t.Formats[min(s, len(t.Formats)-1)]
		blocks := (t.Rows-1)/t.BlockRows + 1
		p.manifest.Ngram[l].SHA256 = append(p.manifest.Ngram[l].SHA256, make([]string, blocks))
		for b := range blocks {
			from := b * t.BlockRows
			rows := min(t.BlockRows, t.Rows-from)
			first := int64(s)*int64(t.Rows) + int64(from)
			at := span{t.Offset + first*int64(t.RowBytes), int64(rows) * int64(t.RowBytes)}
			p.add(&unit{
				name: fmt.Sprintf("rows %d to %d of the n-gram table of %s", first, first+int64(rows), t.Layer), file: ngramFile, spans: []span{at},
				pieces: []piece{{
					fragments: []fragment{{0, at.offset, int(at.bytes)}}, bytes: int(at.bytes),
					build: func(dst []byte) error {
						return p.buildRows(dst, rowsOf(shard, from, from+rows), tableRows{format: format, first: first, bytes: t.RowBytes})
					},
				}},
				observe: func(block []byte) { hashes.feedRows(block, t.RowBytes, format, t.Dim) },
				record:  func(sums []string, _ uint32) { p.manifest.Ngram[l].SHA256[s][b] = sums[0] },
			})
		}
	}
}

// tableRows says how rows are written: their precision, the number of the first, and their distance.
type tableRows struct {
	format weights.PackedMatrix
	first  int64
	bytes  int
}

// buildRows fills a block of n-gram rows from as many rows of a shard.
func (p *plan) buildRows(dst []byte, t weights.Tensor, rows tableRows) error {
	clear(dst)
	arrays := arraysOf(t)
	defer p.source.Discard(arrays...)
	cols := t.Shape[1]
	codes, side := rows.format.RowBytes(cols)
	keep := rows.format == weights.PackedMatrixOf(t)
	var values []float32
	for r := range t.Shape[0] {
		row := dst[r*rows.bytes : (r+1)*rows.bytes]
		if keep {
			to := row
			for i, width := range []int{codes, side, side}[:len(arrays)] {
				copy(to, arrays[i][r*width:(r+1)*width])
				to = to[width:]
			}
		} else {
			values = t.AppendRow(values[:0], r)
			if err := quantiseRow(values, rows.format, row[:codes], row[codes:codes+side], row[codes+side:]); err != nil {
				return fmt.Errorf("row %d of the n-gram table: %w", rows.first+int64(r), err)
			}
		}
		data := row[:len(row)-4]
		binary.LittleEndian.PutUint32(row[len(data):], weights.RowCRC(rows.first+int64(r), data))
	}
	return nil
}
