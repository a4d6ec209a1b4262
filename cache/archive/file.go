package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"lector/cache"
)

// A file is a safetensors file: the length of the header (8 bytes, little-endian), the header (JSON, padded with spaces
// to a multiple of 8), then the tensors back to back in the order of the layout. A rows region is a tensor with its rows
// as the first dimension.
const (
	format    = "lector snapshot 1"
	maxHeader = 100 << 20 // what safetensors allows
	metadata  = "__metadata__"
)

// tensor is one entry of the header.
type tensor struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// description is what the header says beside the tensors; all are strings, as the format wants.
type description struct {
	Format   string `json:"format"`
	Name     string `json:"name"` // of the handle, which holds its digest
	Handle   string `json:"handle"`
	Manifest string `json:"manifest"`
}

// tensorType is the safetensors name of a type, "" for one that is not known.
func tensorType(dtype string) string {
	switch dtype {
	case "f32", "i32", "f16", "bf16", "i8":
		return strings.ToUpper(dtype)
	}
	return ""
}

// plan is where everything of a snapshot lies in its file.
type plan struct {
	header  []byte
	offsets []int64 // of the layout's regions, from the beginning of the file
	size    int64
}

// newPlan lays out the file of a checked manifest.
func newPlan(h cache.Handle, m cache.Manifest) (plan, error) {
	body, err := m.Encode()
	if err != nil {
		return plan{}, err
	}
	var p plan
	buf := bytes.NewBufferString("{")
	if err := field(buf, metadata, description{format, cache.HandleName(cache.Sum(h.Encode())), string(h.Encode()), string(body)}); err != nil {
		return p, err
	}
	at := int64(0)
	for _, s := range m.Layout {
		t := tensor{DType: tensorType(s.DType), Shape: append([]int{}, s.Shape...)}
		if t.DType == "" || s.Name == metadata {
			return p, fmt.Errorf("region %s: safetensors cannot hold it", s)
		}
		if s.Kind == cache.Rows {
			t.Shape = append([]int{s.Rows(m.Tokens)}, t.Shape...)
		}
		p.offsets = append(p.offsets, at)
		t.Offsets = [2]int64{at, at + s.Size(m.Tokens)}
		at = t.Offsets[1]
		buf.WriteByte(',')
		if err := field(buf, s.Name, t); err != nil {
			return p, err
		}
	}
	buf.WriteByte('}')
	for buf.Len()%8 != 0 {
		buf.WriteByte(' ')
	}
	if buf.Len() > maxHeader {
		return p, fmt.Errorf("a header of %d bytes is more than safetensors allows", buf.Len())
	}
	p.header = append(binary.LittleEndian.AppendUint64(nil, uint64(buf.Len())), buf.Bytes()...)
	for i := range p.offsets {
		p.offsets[i] += int64(len(p.header))
	}
	p.size = int64(len(p.header)) + at
	return p, nil
}

// field writes one member of a JSON object.
func field(buf *bytes.Buffer, name string, v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("describe %s: %w", name, err)
	}
	fmt.Fprintf(buf, "%q:%s", name, value)
	return nil
}

// span is a range of the file.
type span struct{ off, n int64 }

// spans lists where the bytes of a blob lie in the file, in the order of the blob.
func (p plan) spans(m cache.Manifest, b cache.Piece) []span {
	var out []span
	skip, left := b.Off, b.Blob.Size
	for i, s := range m.Layout {
		if (s.Kind == cache.Fixed) != b.State {
			continue
		}
		begin := int64(0)
		if !b.State {
			begin = s.Size(b.From)
		}
		n := s.Size(b.To) - begin
		if skip >= n {
			skip -= n
			continue
		}
		take := min(n-skip, left)
		if take > 0 {
			out = append(out, span{p.offsets[i] + begin + skip, take})
		}
		left -= take
		skip = 0
	}
	return out
}

// WriteFile writes the snapshot of a handle as a safetensors file and returns its size. It writes several ranges at a
// time. After an error the file is to be given up.
func WriteFile(ctx context.Context, s *cache.Space, handle cache.Digest, w io.WriterAt) (int64, error) {
	h, m, err := open(ctx, s, handle)
	if err != nil {
		return 0, err
	}
	p, err := newPlan(h, m)
	if err != nil {
		return 0, err
	}
	if _, err := w.WriteAt(p.header, 0); err != nil {
		return 0, err
	}
	err = m.EachPiece(ctx, func(ctx context.Context, b cache.Piece) error {
		body, err := readBlob(ctx, s, b.Blob)
		if err != nil {
			return err
		}
		for _, at := range p.spans(m, b) {
			if _, err := w.WriteAt(body[:at.n], at.off); err != nil {
				return err
			}
			body = body[at.n:]
		}
		return nil
	})
	return p.size, err
}
