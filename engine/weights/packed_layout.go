package weights

import (
	"fmt"
	"hash/crc32"
	"slices"
)

const (
	// PackedAlign is the alignment of a section of dense.bin and of an array within a record. 128 bytes are a cache
	// line of Apple's processors and a multiple of every vector load. Whole pages would only serve a buffer for each
	// tensor; one buffer over the mapped file with offsets serves as well, and small vectors then waste nothing.
	PackedAlign = 128
	// PackedPage is the stride unit of records and the length unit of the data files: a page of Apple's processors
	// and a multiple of every block that direct reads ask for.
	PackedPage = 16384

	// rowCheck is the checksum behind each n-gram row.
	rowCheck = 4
)

// align rounds up to a multiple of unit.
func align(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// check refuses a precision that we don't read, or that rows of cols values cannot have.
func (m PackedMatrix) check(cols int) error {
	if m.DType.float() {
		if m.Bits != 0 || m.Group != 0 || m.Side != "" {
			return fmt.Errorf("%s with %d bits", m.DType, m.Bits)
		}
		return nil
	}
	ok := m.DType == U32 && slices.Contains([]int{2, 3, 4, 6, 8}, m.Bits) && slices.Contains([]int{32, 64, 128}, m.Group) && m.Side.float()
	if !ok || cols%m.Group != 0 {
		return fmt.Errorf("%s of %d bits, groups of %d, %s scales do not make a row of %d values", m.DType, m.Bits, m.Group, m.Side, cols)
	}
	return nil
}

// RowBytes are the bytes of one row of cols values: its codes (or plain values), and each of its scales and biases.
func (m PackedMatrix) RowBytes(cols int) (codes, side int) {
	if m.DType != U32 {
		return cols * m.DType.bits() / 8, 0
	}
	return cols * m.Bits / 8, cols / m.Group * m.Side.bits() / 8
}

// PackedMatrixOf is the precision that a tensor is stored in.
func PackedMatrixOf(t Tensor) PackedMatrix {
	if q := t.Quant; q != nil {
		return PackedMatrix{DType: t.DType, Bits: q.Bits, Group: q.Group, Side: q.Side}
	}
	return PackedMatrix{DType: t.DType}
}

// PackedArray is one of the arrays of a record: bytes [Offset, Offset+Bytes).
type PackedArray struct{ Offset, Bytes int64 }

// Arrays lays out a record: codes, scales and biases of gate, then of up, then of down, each aligned to
// PackedAlign, with zeros between. Arrays that a plain matrix lacks are empty. bytes is the record's length.
func (r PackedRecord) Arrays(inner, hidden int) (arrays [9]PackedArray, bytes int64) {
	for i, m := range r {
		rows, cols := inner, hidden
		if i == 2 {
			rows, cols = hidden, inner
		}
		codes, side := m.RowBytes(cols)
		for j, width := range []int{codes, side, side} {
			arrays[3*i+j] = PackedArray{Offset: align(bytes, PackedAlign), Bytes: int64(rows) * int64(width)}
			if width > 0 {
				bytes = arrays[3*i+j].Offset + arrays[3*i+j].Bytes
			}
		}
	}
	return arrays, bytes
}

// castagnoli is the polynomial that processors have an instruction for.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// RecordCRC is the checksum of an expert record.
func RecordCRC(record []byte) uint32 { return crc32.Checksum(record, castagnoli()) }

// RowCRC is the checksum behind an n-gram row. It covers the row's number as well, so that a row read from a wrong
// place is noticed.
func RowCRC(row int64, data []byte) uint32 {
	var number [8]byte
	for i := range number {
		number[i] = byte(row >> (8 * i))
	}
	return crc32.Update(crc32.Checksum(number[:], castagnoli()), castagnoli(), data)
}

// NgramRowBytes are the bytes of a table's row with its checksum: room for the widest of the formats.
func NgramRowBytes(formats []PackedMatrix, dim int) int {
	widest := 0
	for _, m := range formats {
		codes, side := m.RowBytes(dim)
		widest = max(widest, codes+2*side)
	}
	return widest + rowCheck
}
