package weights

// Entry is a parsed tensor as tests see it.
type Entry struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
}

// ParseSafetensors opens the parser to tests of its own.
func ParseSafetensors(data []byte) ([]Entry, error) {
	tensors, err := parseSafetensors("test.safetensors", data)
	var list []Entry
	for _, t := range tensors {
		list = append(list, Entry{t.name, t.dtype, t.shape, t.data})
	}
	return list, err
}

// Canonical opens the translation of names.
func Canonical(name string) (string, bool) { return canonical(name) }

// Half opens the decoder of IEEE halves.
func Half(h uint16) float32 { return half(h) }
