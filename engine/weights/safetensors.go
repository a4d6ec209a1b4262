package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// DType is how the values of a stored tensor are written, in the spelling of safetensors.
type DType string

// The types that the network's tensors may have. Others may stand in a file as long as nothing needs them.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	I64  DType = "I64"
	I32  DType = "I32"
	U32  DType = "U32"
	U8   DType = "U8"
)

// bits is the width of one value, 0 for a type that the format does not know.
func (d DType) bits() int {
	switch d {
	case "F4":
		return 4
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "BOOL", U8, "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return 8
	case "I16", "U16", F16, BF16:
		return 16
	case I32, U32, F32:
		return 32
	case I64, "U64", "F64", "C64":
		return 64
	}
	return 0
}

// float says whether values of the type are read as numbers of a weight.
func (d DType) float() bool { return d == F32 || d == F16 || d == BF16 }

// maxHeader is the format's own limit: a longer header is damage or an attack.
const maxHeader = 100_000_000

// stored is one tensor of one file.
type stored struct {
	canonical string // released name, set when the file joins a checkpoint
	name      string // as in the file
	file      string // base name, for errors
	dtype     DType
	shape     []int
	data      []byte // view of the file
	begin     uint64 // offsets within the data section
	end       uint64
	sum       string // digest that a packed store's manifest gives, in hex
}

func (s *stored) String() string {
	return fmt.Sprintf("%s in %s (%s %v)", s.name, s.file, s.dtype, s.shape)
}

// parseSafetensors reads the header of a safetensors file and returns its tensors in the order of their bytes.
// The tensors are views of data. Every byte of the data section must belong to exactly one tensor.
func parseSafetensors(file string, data []byte) ([]*stored, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("%s is %d bytes long: a safetensors file starts with an 8-byte header length", file, len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader {
		return nil, fmt.Errorf("%s says its header has %d bytes, more than the format's limit of %d", file, n, maxHeader)
	}
	if n > uint64(len(data)-8) {
		return nil, fmt.Errorf("%s is cut short: its header has %d bytes, the file %d", file, n, len(data))
	}
	body := data[8+n:]
	var tensors []*stored
	err := members(data[8:8+n], func(key string, raw json.RawMessage) error {
		if key == "__metadata__" {
			return nil
		}
		t, err := parseEntry(file, key, raw, uint64(len(body)))
		if err != nil {
			return err
		}
		t.data = body[t.begin:t.end:t.end]
		tensors = append(tensors, t)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read header of %s: %w", file, err)
	}
	slices.SortFunc(tensors, func(a, b *stored) int {
		if a.begin != b.begin {
			return cmpUint(a.begin, b.begin)
		}
		if a.end != b.end {
			return cmpUint(a.end, b.end)
		}
		return strings.Compare(a.name, b.name)
	})
	return tensors, checkCover(file, tensors, uint64(len(body)))
}

func cmpUint(a, b uint64) int {
	if a < b {
		return -1
	}
	return 1
}

// checkCover makes sure that sorted tensors neither overlap nor leave bytes unnamed.
func checkCover(file string, tensors []*stored, size uint64) error {
	at, last := uint64(0), "the header"
	for _, t := range tensors {
		if t.begin < at {
			return fmt.Errorf("tensor %s in %s starts at byte %d, inside %s which ends at %d", t.name, file, t.begin, last, at)
		}
		if t.begin > at {
			return fmt.Errorf("bytes %d to %d of %s, before tensor %s, belong to no tensor", at, t.begin, file, t.name)
		}
		at, last = t.end, t.name
	}
	if at != size {
		return fmt.Errorf("bytes %d to %d of %s, after the last tensor, belong to no tensor", at, size, file)
	}
	return nil
}

// parseEntry reads the description of one tensor; size is the length of the data section.
func parseEntry(file, name string, raw json.RawMessage, size uint64) (*stored, error) {
	var e struct {
		DType   *DType   `json:"dtype"`
		Shape   *[]int64 `json:"shape"`
		Offsets []uint64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", name, err)
	}
	if e.DType == nil || e.Shape == nil || len(e.Offsets) != 2 {
		return nil, fmt.Errorf("tensor %s: needs dtype, shape and two data_offsets", name)
	}
	width := e.DType.bits()
	if width == 0 {
		return nil, fmt.Errorf("tensor %s: type %q is unknown", name, *e.DType)
	}
	t := &stored{name: name, file: file, dtype: *e.DType, begin: e.Offsets[0], end: e.Offsets[1]}
	if t.begin > t.end || t.end > size {
		return nil, fmt.Errorf("tensor %s: data_offsets [%d, %d] lie outside the %d bytes of data (is the file cut short?)", name, t.begin, t.end, size)
	}
	values := uint64(1)
	for _, d := range *e.Shape {
		if d < 0 || d > math.MaxInt32*int64(1024) {
			return nil, fmt.Errorf("tensor %s: shape %v", name, *e.Shape)
		}
		if d > 0 && values > math.MaxInt64/64/uint64(d) {
			return nil, fmt.Errorf("tensor %s: shape %v is too large", name, *e.Shape)
		}
		values *= uint64(d)
		t.shape = append(t.shape, int(d))
	}
	if values*uint64(width)%8 != 0 || values*uint64(width)/8 != t.end-t.begin {
		return nil, fmt.Errorf("tensor %s: %s %v takes %d bits, data_offsets give %d bytes", name, t.dtype, t.shape, values*uint64(width), t.end-t.begin)
	}
	return t, nil
}

// members visits the members of a JSON object in order; a key that stands twice is an error, since readers
// would disagree about which one counts.
func members(data []byte, visit func(key string, value json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return errors.Join(errors.New("not a JSON object"), err)
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return fmt.Errorf("key %v is not a string", token)
		}
		if seen[key] {
			return fmt.Errorf("key %q stands twice", key)
		}
		seen[key] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fmt.Errorf("value of %q: %w", key, err)
		}
		if err := visit(key, value); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more text after the JSON object")
	}
	return nil
}

// Bits is the width of one value, 0 for a type that the format does not know.
func (d DType) Bits() int { return d.bits() }
