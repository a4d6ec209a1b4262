package pack

import (
	"fmt"
	"strings"

	"lector/engine/weights"
)

const (
	// chunkBytes bounds what is read or written of a dense tensor or a table at once.
	chunkBytes = 4 << 20
)

// plan says where everything of a store goes, before anything is written.
type plan struct {
	source   *weights.Checkpoint
	settings Settings
	manifest *weights.PackedManifest // without digests
	units    []*unit                 // in the order of writing
	stacks   *stacks
	total    int64 // bytes of all units
	largest  int   // bytes of the largest piece
}

// unit is what is finished, journalled and reused as a whole: a dense tensor, an expert record, a block of n-gram
// rows.
type unit struct {
	name    string
	file    int    // index into dataFiles
	spans   []span // sections of the file
	pieces  []piece
	observe func(data []byte)               // sees the bytes of a unit of one piece, in order of units
	record  func(sums []string, crc uint32) // takes the digest of each span into the manifest
	checked bool                            // a CRC32C is wanted
	bytes   int64
}

// span is a range of a data file.
type span struct{ offset, bytes int64 }

// piece is what one goroutine builds at once.
type piece struct {
	fragments []fragment
	bytes     int
	build     func(dst []byte) error // fills all fragments, one after another
}

// fragment is a part of a piece: bytes of span `span` at `offset` of the file.
type fragment struct {
	span   int
	offset int64
	bytes  int
}

// dataFiles are the files that units are written to.
func dataFiles() [3]string {
	return [3]string{weights.PackedDenseFile, weights.PackedExpertsFile, weights.PackedNgramFile}
}

const (
	denseFile = iota
	expertsFile
	ngramFile
)

// newPlan lays out the whole store.
func newPlan(source *weights.Checkpoint, settings Settings) (*plan, error) {
	p := &plan{source: source, settings: settings, stacks: newStacks(), manifest: &weights.PackedManifest{
		Source: weights.PackedSource{Name: source.Name(), Digest: headerDigest(source)},
		Norms:  source.NormReadings(), Settings: settings.String(),
		Dense: []weights.PackedTensor{}, Experts: []weights.PackedLayer{}, Ngram: []weights.PackedTable{},
	}}
	dense := p.dense()
	experts, err := p.experts()
	if err != nil {
		return nil, err
	}
	ngram, err := p.ngram()
	if err != nil {
		return nil, err
	}
	for i, end := range []int64{dense, experts, ngram} {
		p.manifest.Data = append(p.manifest.Data, weights.PackedFile{Name: dataFiles()[i], Bytes: padded(end, weights.PackedPage)})
	}
	return p, nil
}

// padded rounds up to a multiple of unit.
func padded(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// add takes a unit whose pieces are set.
func (p *plan) add(u *unit) {
	for _, piece := range u.pieces {
		p.largest = max(p.largest, piece.bytes)
	}
	for _, s := range u.spans {
		u.bytes += s.bytes
	}
	p.total += u.bytes
	p.units = append(p.units, u)
}

// layers names every layer with experts, in the store's order.
func layers(c *weights.Config) []string {
	var names []string
	for i := range c.Layers {
		names = append(names, fmt.Sprintf("model.language_model.layers.%d", i))
	}
	if c.MTPLayers > 0 {
		names = append(names, "mtp.layers.0")
	}
	return names
}

// isDense tells the tensors that lie in dense.bin from those that are cut into records.
func isDense(name string) bool {
	for _, part := range []string{".mlp.experts.", ".mlp.switch_mlp.", ".ple_embedding.ngram_embedding."} {
		if strings.Contains(name, part) {
			return false
		}
	}
	return true
}

// dense lays out dense.bin: tensors by name, the arrays of a quantised one behind one another.
func (p *plan) dense() (end int64) {
	for _, t := range p.source.Tensors() {
		if !isDense(t.Name) {
			continue
		}
		want := p.settings.dense(t)
		u := &unit{name: "tensor " + t.Name, file: denseFile}
		first := len(p.manifest.Dense)
		for _, part := range partsOf(t, want) {
			end = padded(end, weights.PackedAlign)
			n := byteCount(part)
			part.Name = storedName(t, part.Name)
			p.manifest.Dense = append(p.manifest.Dense, weights.PackedTensor{PackedDigest: part, Offset: end, Bytes: n})
			u.spans = append(u.spans, span{end, n})
			end += n
		}
		u.record = func(sums []string, _ uint32) {
			for i, sum := range sums {
				p.manifest.Dense[first+i].SHA256 = sum
			}
		}
		u.pieces = p.densePieces(u, t, want)
		p.add(u)
	}
	return end
}

// densePieces cuts a tensor into chunks: of rows where it is quantised, of bytes where it is copied.
func (p *plan) densePieces(u *unit, t weights.Tensor, want weights.PackedMatrix) (pieces []piece) {
	if want != weights.PackedMatrixOf(t) {
		return p.quantisedPieces(u, t, want)
	}
	for i, data := range arraysOf(t) {
		for from := 0; from < len(data); from += chunkBytes {
			part := data[from:min(from+chunkBytes, len(data))]
			pieces = append(pieces, piece{
				fragments: []fragment{{i, u.spans[i].offset + int64(from), len(part)}}, bytes: len(part),
				build: func(dst []byte) error {
					copy(dst, part)
					p.source.Discard(part)
					return nil
				},
			})
		}
	}
	return pieces
}

// quantisedPieces cuts a matrix into chunks of rows, whose codes, scales and biases go to three places.
func (p *plan) quantisedPieces(u *unit, t weights.Tensor, want weights.PackedMatrix) (pieces []piece) {
	rows, cols := t.Shape[0], t.Shape[1]
	codes, side := want.RowBytes(cols)
	step := max(1, chunkBytes*rows/max(len(t.Data), 1))
	for from := 0; from < rows; from += step {
		n := min(step, rows-from)
		c := piece{bytes: n * (codes + 2*side)}
		for i, width := range []int{codes, side, side} {
			c.fragments = append(c.fragments, fragment{i, u.spans[i].offset + int64(from)*int64(width), n * width})
		}
		c.build = func(dst []byte) error {
			part := rowsOf(t, from, from+n)
			defer p.source.Discard(part.Data)
			return quantiseRows(part, want, dst[:n*codes], dst[n*codes:n*(codes+side)], dst[n*(codes+side):])
		}
		pieces = append(pieces, c)
	}
	return pieces
}
