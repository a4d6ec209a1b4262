package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The files of a packed store. Byte tables are in pack/format.md.
const (
	PackedManifestFile = "pack.json"   // written last: a folder without it is no store
	PackedDenseFile    = "dense.bin"   // everything but experts and n-gram tables
	PackedExpertsFile  = "experts.bin" // expert records
	PackedNgramFile    = "ngram.bin"   // rows of the n-gram tables
)

// PackedVersion is the version of the format that is written and read. Version 1 is the first.
const PackedVersion = 1

// PackedManifest describes a packed store: where everything lies, in which precision, and its digests.
type PackedManifest struct {
	Source   PackedSource      `json:"source"`
	Norms    map[string]string `json:"norms"`    // how each class of norms is read: "plain", "centred" or "folded"
	Files    []PackedFile      `json:"files"`    // files copied beside the data, such as config.json
	Data     []PackedFile      `json:"data"`     // the three data files; their digests are those of their sections
	Dense    []PackedTensor    `json:"dense"`    // by offset
	Experts  []PackedLayer     `json:"experts"`  // by offset: decoder layers in order, the draft head's last
	Ngram    []PackedTable     `json:"ngram"`    // by PLE layer
	Stacks   []PackedDigest    `json:"stacks"`   // experts and table shards as whole tensors, by name: they enter the model's identity
	Settings string            `json:"settings"` // what the packer was asked for, such as "bits=4 experts=4 group=64"
}

// PackedSource says what was packed.
type PackedSource struct {
	Name   string `json:"name"`   // of its folder
	Digest string `json:"digest"` // SHA-256 over config and tensor headers: tells two sources apart, not two sets of values
}

// PackedFile is a file of the store. Data files have no digest of their own.
type PackedFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
}

// PackedDigest names the stored bytes of one tensor. Its name is canonical.
type PackedDigest struct {
	Name   string `json:"name"`
	DType  DType  `json:"dtype"`
	Shape  []int  `json:"shape"`
	SHA256 string `json:"sha256"`
}

// PackedTensor is a section of dense.bin: one stored tensor under the name that its source gave it; codes, scales
// and biases are three of them.
type PackedTensor struct {
	PackedDigest
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// PackedMatrix is the precision of a matrix in a record or a row.
type PackedMatrix struct {
	DType DType `json:"dtype"` // BF16, F16 or F32, or U32 with the rest set
	Bits  int   `json:"bits,omitempty"`
	Group int   `json:"group,omitempty"`
	Side  DType `json:"side,omitempty"`
}

// PackedRecord is the precision of an expert's gate, up and down.
type PackedRecord [3]PackedMatrix

// PackedLayer is one layer's records in experts.bin: record e starts at Offset + e*Stride.
type PackedLayer struct {
	Layer   string         `json:"layer"` // such as "model.language_model.layers.3"
	N       int            `json:"n"`
	Inner   int            `json:"inner"`
	Hidden  int            `json:"hidden"`
	Offset  int64          `json:"offset"`
	Stride  int64          `json:"stride"`
	Formats []PackedRecord `json:"formats"`          // those that occur
	Format  []int          `json:"format,omitempty"` // index into Formats by record; absent: all are 0
	CRC     []uint32       `json:"crc32c"`           // by record, for every read
	SHA256  []string       `json:"sha256"`           // by record
}

// PackedTable is the n-gram table of one PLE layer in ngram.bin: row r starts at Offset + r*RowBytes.
type PackedTable struct {
	Layer     string         `json:"layer"`
	Shards    int            `json:"shards"`
	Rows      int            `json:"rows"` // of one shard
	Dim       int            `json:"dim"`
	Offset    int64          `json:"offset"`
	RowBytes  int            `json:"row_bytes"`  // stride of rows, their checksum included
	BlockRows int            `json:"block_rows"` // rows that one digest covers; a shard's last block may be shorter
	Formats   []PackedMatrix `json:"formats"`    // of all shards, or one for each
	SHA256    [][]string     `json:"sha256"`     // by shard and block
}

// packedFile is pack.json: the digest is over the bytes of the store's member as written.
type packedFile struct {
	Format  string          `json:"format"`
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Store   json.RawMessage `json:"store"`
}

const packedFormat = "lector pack"

// Encode writes the text of pack.json, the same for equal manifests.
func (m *PackedManifest) Encode() ([]byte, error) {
	store, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", PackedManifestFile, err)
	}
	sum := sha256.Sum256(store)
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"format\":%q,\"version\":%d,\"sha256\":\"%x\",\n\"store\":", packedFormat, PackedVersion, sum)
	b.Write(store)
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// ParsePacked reads the text of pack.json and checks everything that it alone can tell: version, digest, and that
// every section lies where it can. Errors name the section.
func ParsePacked(data []byte) (*PackedManifest, error) {
	m, err := parsePacked(data)
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", PackedManifestFile, err)
	}
	return m, nil
}

func parsePacked(data []byte) (*PackedManifest, error) {
	var f packedFile
	if err := strict(data, &f); err != nil {
		return nil, err
	}
	if f.Format != packedFormat {
		return nil, fmt.Errorf("format is %q: not a packed store", f.Format)
	}
	if f.Version != PackedVersion {
		return nil, fmt.Errorf("version %d is not supported: this lector reads version %d; pack the source again", f.Version, PackedVersion)
	}
	sum := sha256.Sum256(f.Store)
	if got := hex.EncodeToString(sum[:]); got != f.SHA256 {
		return nil, fmt.Errorf("its digest is %s, it says %.64q: the manifest is damaged", got, f.SHA256)
	}
	m := &PackedManifest{}
	return m, strict(f.Store, m)
}

// strict decodes one JSON value that has no unknown members and nothing behind it.
func strict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more text after the JSON value")
	}
	return nil
}

// file finds a data file or a copied one.
func file(list []PackedFile, name string) (PackedFile, bool) {
	for _, f := range list {
		if f.Name == name {
			return f, true
		}
	}
	return PackedFile{}, false
}
