package cache

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// NodeVersion is the newest node format. 1: first.
const NodeVersion = 1

// maxNodeBytes bounds an encoded node; a real model's has about 20 KB.
const maxNodeBytes = 4 << 20

// maxTop bounds the logits of a probe.
const maxTop = 1024

// Blob names stored bytes: rows of one chunk or recurrent state, or a part of them.
type Blob struct {
	Digest Digest `json:"digest"`
	Size   int64  `json:"size"`
}

// Node describes one grid cell of one prefix: the tokens [From, To) and the state after them. It holds nothing
// but pure functions of the producer and the tokens. Rows are, for each Rows region of the layout in order,
// its rows [max(From-Lag, 0), max(To-Lag, 0)), back to back in one stream that is cut into blobs of MaxBlob;
// State is likewise the Fixed regions at To, and says their digests whether they are kept or not.
type Node struct {
	Version  int        `json:"version"`
	Key      Key        `json:"key"` // its own name
	Producer ProducerID `json:"producer"`
	Parent   Key        `json:"parent"` // zero for the first
	From     int        `json:"from"`
	To       int        `json:"to"`
	Tokens   Digest     `json:"tokens"` // of the token ids of [From, To), little-endian uint32
	Layout   Layout     `json:"layout"`
	Rows     []Blob     `json:"rows"`
	State    []Blob     `json:"state"`
	Probe    Probe      `json:"probe"`
	Losses   []Loss     `json:"losses,omitempty"` // at To, of regions that were rounded
}

// Probe is what the engine said at a boundary: a resume recomputes it from the restored state.
type Probe struct {
	Top   []TopLogit `json:"top"`   // the largest logits, best first
	Next  int32      `json:"next"`  // greedy token
	Draft int32      `json:"draft"` // of the token after Next; -1 without a draft head
}

// TopLogit is one entry of a Probe.
type TopLogit struct {
	ID    int32   `json:"id"`
	Logit float32 `json:"logit"`
}

// MarshalJSON writes the logit as the shortest decimal that reads back as the same float32, and refuses one
// that is not finite.
func (t TopLogit) MarshalJSON() ([]byte, error) {
	if f := float64(t.Logit); math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("logit of token %d is %v, not a finite number", t.ID, t.Logit)
	}
	b := append([]byte(`{"id":`), strconv.Itoa(int(t.ID))...)
	b = append(b, `,"logit":`...)
	b = strconv.AppendFloat(b, float64(t.Logit), 'g', -1, 32)
	return append(b, '}'), nil
}

// nodeFile is the stored form: Sum is the digest of the canonical JSON of the node without it, so that a damaged
// node is told from one that another computation produced.
type nodeFile struct {
	Node
	Sum Digest `json:"sum"`
}

// seal adds the checksum.
func (n Node) seal() (nodeFile, error) {
	n = n.normal()
	body, err := encodeJSON(n)
	return nodeFile{n, Sum(body)}, err
}

// Encode is the canonical form.
func (n Node) Encode() ([]byte, error) {
	f, err := n.seal()
	if err != nil {
		return nil, fmt.Errorf("encode node %s: %w", n.Key, err)
	}
	b, err := encodeJSON(f)
	if err != nil {
		return nil, fmt.Errorf("encode node %s: %w", n.Key, err)
	}
	if len(b) > maxNodeBytes {
		return nil, fmt.Errorf("encode node %s: %d bytes, more than %d", n.Key, len(b), maxNodeBytes)
	}
	return b, nil
}

// normal has no nil slices: an absent list and an empty one have one form.
func (n Node) normal() Node {
	n.Layout = n.Layout.normal()
	n.Rows = append([]Blob{}, n.Rows...)
	n.State = append([]Blob{}, n.State...)
	n.Probe = n.Probe.normal()
	n.Losses = append([]Loss(nil), n.Losses...)
	return n
}

func (l Layout) normal() Layout {
	out := make(Layout, len(l))
	for i, s := range l {
		s.Shape = append([]int{}, s.Shape...)
		out[i] = s
	}
	return out
}

func (p Probe) normal() Probe {
	p.Top = append([]TopLogit{}, p.Top...)
	return p
}

func (p Probe) check() error {
	if len(p.Top) > maxTop {
		return fmt.Errorf("probe has %d logits, more than %d", len(p.Top), maxTop)
	}
	for _, t := range p.Top {
		if _, err := json.Marshal(t); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
	}
	return nil
}

// DecodeNode reads the stored form. Anything but the canonical form of a consistent node is ErrCorrupt.
func DecodeNode(b []byte) (Node, error) {
	var f nodeFile
	if err := decodeJSON(b, form{"node", NodeVersion, maxNodeBytes}, &f); err != nil {
		return Node{}, err
	}
	sealed, err := f.seal()
	if err != nil {
		return Node{}, refuse(ErrCorrupt, "node is damaged: %v", err)
	}
	if sealed.Sum != f.Sum {
		return Node{}, refuse(ErrCorrupt, "node is damaged: its checksum is %s, and its bytes have %s", f.Sum, sealed.Sum)
	}
	canonical, err := encodeJSON(sealed)
	if err != nil {
		return Node{}, refuse(ErrCorrupt, "node is damaged: %v", err)
	}
	if err := sameForm("node", b, canonical); err != nil {
		return Node{}, err
	}
	if err := f.check(); err != nil {
		return Node{}, refuse(ErrCorrupt, "node %s is damaged: %v", f.Key, err)
	}
	return f.Node, nil
}

// check says whether the parts of a node agree with each other.
func (n Node) check() error {
	if n.From < 0 || n.To <= n.From {
		return fmt.Errorf("tokens [%d, %d) are no range", n.From, n.To)
	}
	if (n.From == 0) != (n.Parent == Key{}) {
		return fmt.Errorf("it begins at token %d and its parent is %s", n.From, n.Parent)
	}
	if _, err := n.Layout.check(n.To); err != nil {
		return err
	}
	if err := checkBlobs("rows", n.Rows, n.Layout.chunkBytes(n.From, n.To)); err != nil {
		return err
	}
	if err := checkBlobs("recurrent state", n.State, n.Layout.fixedBytes()); err != nil {
		return err
	}
	if err := n.Layout.checkLosses(n.Losses); err != nil {
		return err
	}
	return n.Probe.check()
}

// checkBlobs says whether the parts have possible sizes and hold all of what they should.
func checkBlobs(what string, blobs []Blob, want int64) error {
	sum := int64(0)
	for _, b := range blobs {
		if b.Size < 1 || b.Size > MaxBlob {
			return fmt.Errorf("%s: blob %s has the size %d, not 1 to %d", what, b.Digest, b.Size, MaxBlob)
		}
		if sum += b.Size; sum > want {
			break
		}
	}
	if sum != want {
		return fmt.Errorf("%s: the blobs hold %d bytes or more, and the layout needs %d", what, sum, want)
	}
	return nil
}
