package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// kind is how values are stored; the numbers are GGUF's.
type kind uint32

const (
	f32 kind = 0
	q40 kind = 2
)

// block is how many values of a row q4_0 stores together: a half and 16 bytes of codes.
const (
	block      = 32
	blockBytes = 2 + block/2
)

// alignment of every tensor's data.
const alignment = 32

// tensor is rows of columns whose values are made when they are written. dims are GGUF's: columns first.
type tensor struct {
	name       string
	dims       []int
	rows, cols int
	kind       kind
	row        func(i int) []float32
}

func (t tensor) bytes() int {
	if t.kind == q40 {
		return t.rows * t.cols / block * blockBytes
	}
	return 4 * t.rows * t.cols
}

// file is a GGUF in the making: what it says, then its tensors.
type file struct {
	meta    []byte
	entries int
	tensors []tensor
}

// value types of the metadata.
const (
	typeUint32  = 4
	typeInt32   = 5
	typeFloat32 = 6
	typeBool    = 7
	typeString  = 8
	typeArray   = 9
	typeUint64  = 10
)

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func (f *file) key(name string, kind uint32) {
	f.meta = binary.LittleEndian.AppendUint32(appendString(f.meta, name), kind)
	f.entries++
}

func (f *file) str(name, v string) {
	f.key(name, typeString)
	f.meta = appendString(f.meta, v)
}

func (f *file) number(name string, v int) {
	f.key(name, typeUint32)
	f.meta = binary.LittleEndian.AppendUint32(f.meta, uint32(v))
}

func (f *file) float(name string, v float64) {
	f.key(name, typeFloat32)
	f.meta = binary.LittleEndian.AppendUint32(f.meta, math.Float32bits(float32(v)))
}

func (f *file) no(name string) {
	f.key(name, typeBool)
	f.meta = append(f.meta, 0)
}

// list writes an array of whole numbers of one of the types above.
func list[T int | int64](f *file, name string, kind uint32, values []T) {
	f.array(name, kind, len(values))
	for _, v := range values {
		if kind == typeUint64 {
			f.meta = binary.LittleEndian.AppendUint64(f.meta, uint64(v))
		} else {
			f.meta = binary.LittleEndian.AppendUint32(f.meta, uint32(v))
		}
	}
}

func (f *file) strings(name string, values []string) {
	f.array(name, typeString, len(values))
	for _, v := range values {
		f.meta = appendString(f.meta, v)
	}
}

func (f *file) array(name string, kind uint32, n int) {
	f.key(name, typeArray)
	f.meta = binary.LittleEndian.AppendUint32(f.meta, kind)
	f.meta = binary.LittleEndian.AppendUint64(f.meta, uint64(n))
}

func aligned(n int) int { return (n + alignment - 1) / alignment * alignment }

// write writes the whole file.
func (f *file) write(to io.Writer) error {
	head := binary.LittleEndian.AppendUint32([]byte("GGUF"), 3)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(f.tensors)))
	head = binary.LittleEndian.AppendUint64(head, uint64(f.entries))
	head = append(head, f.meta...)
	at := 0
	for _, t := range f.tensors {
		head = binary.LittleEndian.AppendUint32(appendString(head, t.name), uint32(len(t.dims)))
		for _, d := range t.dims {
			head = binary.LittleEndian.AppendUint64(head, uint64(d))
		}
		head = binary.LittleEndian.AppendUint32(head, uint32(t.kind))
		head = binary.LittleEndian.AppendUint64(head, uint64(at))
		at += aligned(t.bytes())
	}
	w := bufio.NewWriterSize(to, 1<<20)
	if _, err := w.Write(pad(head)); err != nil {
		return err
	}
	for _, t := range f.tensors {
		if err := t.write(w); err != nil {
			return fmt.Errorf("write %s: %w", t.name, err)
		}
	}
	return w.Flush()
}

func pad(b []byte) []byte { return append(b, make([]byte, aligned(len(b))-len(b))...) }

func (t tensor) write(w io.Writer) error {
	var b []byte
	for i := range t.rows {
		values := t.row(i)
		if len(values) != t.cols {
			return fmt.Errorf("row %d has %d values, not %d", i, len(values), t.cols)
		}
		b = t.kind.encode(b[:0], values)
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	_, err := w.Write(make([]byte, aligned(t.bytes())-t.bytes()))
	return err
}

// encode appends values as they are stored.
func (k kind) encode(dst []byte, values []float32) []byte {
	if k == q40 {
		for b := range slices.Chunk(values, block) {
			dst = appendBlock(dst, b)
		}
		return dst
	}
	for _, v := range values {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

// appendBlock stores 32 values in q4_0: value = d (code - 8), where d makes the value of the largest size the code 0.
// Byte j holds the codes of values j (low) and j + 16.
func appendBlock(dst []byte, values []float32) []byte {
	largest := float32(0)
	for _, v := range values {
		if math.Abs(float64(v)) > math.Abs(float64(largest)) {
			largest = v
		}
	}
	d := largest / -8
	inverse := float32(0)
	if d != 0 {
		inverse = 1 / d
	}
	code := func(v float32) byte { return byte(min(15, max(0, math.Floor(float64(v*inverse)+8.5)))) }
	dst = binary.LittleEndian.AppendUint16(dst, half(d))
	for j := range block / 2 {
		dst = append(dst, code(values[j])|code(values[j+block/2])<<4)
	}
	return dst
}

// half rounds to the nearest IEEE half, to the even one of two.
func half(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, rest := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case rest >= 0x47800000: // 65536 and above, and what is no number
		if rest > 0x7f800000 {
			return sign | 0x7e00
		}
		return sign | 0x7c00
	case rest < 0x38800000: // below the smallest normal half: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(math.Abs(float64(v))*(1<<24)))
	}
	rest += 0xfff + rest>>13&1
	return sign | uint16((rest-0x38000000)>>13)
}
