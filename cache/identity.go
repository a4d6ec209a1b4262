package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// FormatMajor is part of every ModelID: a change of what stored state means makes other keys. 1: first.
const FormatMajor = 1

// The first bytes of everything that is hashed into a name: no hash of one thing is the hash of another.
const (
	modelDomain    = "lector model 1\n"
	producerDomain = "lector producer 1\n"
	keyDomain      = "lector key 1\n"
	handleDomain   = "lector handle 1\n"
)

// Field is one named part of an identity: a digest in hex, or a plain setting.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Identity is everything that the bits of a state depend on. NewIdentity computes the ids.
type Identity struct {
	Fields   []Field    `json:"fields"` // as the engine gave them, in order
	Class    string     `json:"class"`  // numeric class, such as "cpu-f32"
	Grid     int        `json:"grid"`   // tokens; a constant of the class
	Model    ModelID    `json:"model"`
	Producer ProducerID `json:"producer"`
}

// NewIdentity names a model for one tenant: the salt (nil: none) keeps tenants from computing each other's names.
func NewIdentity(fields []Field, class string, grid int, salt []byte) Identity {
	id := Identity{Fields: append([]Field{}, fields...), Class: class, Grid: grid}
	h := sha256.New()
	h.Write([]byte(modelDomain))
	hashUint(h, FormatMajor)
	hashText(h, string(salt))
	hashUint(h, uint64(len(fields)))
	for _, f := range fields {
		hashText(h, f.Name)
		hashText(h, f.Value)
	}
	h.Sum(id.Model[:0])
	id.Producer = producer(id.Model, class, grid)
	return id
}

// producer derives the id that keys chain on.
func producer(model ModelID, class string, grid int) (p ProducerID) {
	h := sha256.New()
	h.Write([]byte(producerDomain))
	h.Write(model[:])
	hashText(h, class)
	hashUint(h, uint64(grid))
	h.Sum(p[:0])
	return p
}

// hashUint adds 8 little-endian bytes.
func hashUint(h hash.Hash, n uint64) { h.Write(binary.LittleEndian.AppendUint64(nil, n)) }

// hashText adds the length, then the bytes, so that no two lists of texts give the same stream.
func hashText(h hash.Hash, s string) {
	hashUint(h, uint64(len(s)))
	h.Write([]byte(s))
}

// Agreement says how state made in one numeric class goes on in another.
type Agreement uint8

const (
	Unlisted Agreement = iota // nobody compared the two: refused
	Bounded                   // within the bounds that the fixtures check; texts may part where a choice was close
	Exact                     // the same bits as not having stopped
)

// Agree is the one table of class pairs. A class is one written order of every sum, so it agrees with itself
// exactly; every listed class was compared with cpu-f32 on the fixtures, and so with every other within bounds.
func Agree(from, to string) Agreement {
	listed := []string{"cpu-f32", "cpu-f32-blocked", "cpu-amx", "cpu-bfp24", "metal-f32", "metal-h1", "soft-f32", "soft-h1", "ptx-f32", "ptx-h1"}
	switch {
	case !slices.Contains(listed, from) || !slices.Contains(listed, to):
		return Unlisted
	case from == to:
		return Exact
	}
	return Bounded
}

// Compatible says whether state of have (from a manifest) may be restored by want (the loaded engine): nil, or
// ErrIncompatible naming the field that differs with both values, or the pair of classes that is not listed.
func (want Identity) Compatible(have Identity) error {
	for i := range max(len(want.Fields), len(have.Fields)) {
		if err := compareField(fieldAt(want.Fields, i), fieldAt(have.Fields, i)); err != nil {
			return err
		}
	}
	if want.Model != have.Model {
		return refuse(ErrIncompatible, "model id: snapshot has %s, this model has %s with the same fields: "+
			"it was stored under another tenant's salt or another format", brief(have.Model.String()), brief(want.Model.String()))
	}
	if Agree(have.Class, want.Class) == Unlisted {
		return refuse(ErrIncompatible, "class: snapshot was computed by %s, this engine computes %s, "+
			"and that pair is not known to agree: resume with the class %s, or read the document again", have.Class, want.Class, have.Class)
	}
	return nil
}

// CompatibleSalted is Compatible for a tenant that has had other salts, too: state stored under one of those may be restored.
func (want Identity) CompatibleSalted(have Identity, older [][]byte) error {
	err := want.Compatible(have)
	for _, salt := range older {
		if err == nil || want.Model == have.Model {
			break
		}
		if NewIdentity(want.Fields, want.Class, want.Grid, salt).Compatible(have) == nil {
			return nil
		}
	}
	return err
}

// fieldAt is the i-th field, or none.
func fieldAt(fields []Field, i int) Field {
	if i < len(fields) {
		return fields[i]
	}
	return Field{}
}

func compareField(want, have Field) error {
	switch {
	case want == have:
		return nil
	case want.Name == have.Name:
		return refuse(ErrIncompatible, "%s: snapshot has %s, this model has %s", want.Name, brief(have.Value), brief(want.Value))
	case have.Name == "":
		return refuse(ErrIncompatible, "%s: snapshot does not say it, this model has %s", want.Name, brief(want.Value))
	case want.Name == "":
		return refuse(ErrIncompatible, "%s: snapshot has %s, this model does not say it", have.Name, brief(have.Value))
	}
	return refuse(ErrIncompatible, "identity fields differ: snapshot has %s where this model has %s", have.Name, want.Name)
}

// brief shortens a digest for people, and leaves plain settings whole.
func brief(s string) string {
	if isDigestText(s) {
		return s[:12] + "…"
	}
	if s == "" {
		return `""`
	}
	return s
}
