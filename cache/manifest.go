package cache

import (
	"fmt"
)

// ManifestVersion is the newest manifest format. 1: first.
const ManifestVersion = 1

// maxManifestBytes bounds an encoded manifest: about 16 thousand chunks.
const maxManifestBytes = 8 << 20

// Manifest is what one restore needs, in order. It holds no host, time or lease, so that the same document
// gives the same manifest everywhere.
type Manifest struct {
	Version  int      `json:"version"`
	Identity Identity `json:"identity"`
	Tokens   int      `json:"tokens"`
	Bytes    int64    `json:"bytes"` // of the whole state: what a restore reads
	Layout   Layout   `json:"layout"`
	Chunks   []Chunk  `json:"chunks"`
	State    []Blob   `json:"state"`            // recurrent state at Tokens; none where TokensOnly
	Probe    Probe    `json:"probe"`            // at Tokens
	Losses   []Loss   `json:"losses,omitempty"` // at Tokens, of regions that were rounded
}

// Chunk is what a manifest says of one node.
type Chunk struct {
	Key    Key    `json:"key"`
	From   int    `json:"from"`
	To     int    `json:"to"`
	Tokens Digest `json:"tokens"`
	Rows   []Blob `json:"rows"`
}

// NewManifest describes the state at the end of a chain of nodes, which must begin at token 0 and be of id's
// producer. It stores nothing: a worker restores from one that it made in memory, too.
func NewManifest(id Identity, nodes []Node) (Manifest, error) {
	if len(nodes) == 0 {
		return Manifest{}, fmt.Errorf("make manifest: no nodes")
	}
	last := nodes[len(nodes)-1]
	m := Manifest{
		Version: ManifestVersion, Identity: id, Tokens: last.To, Layout: last.Layout, State: last.State, Probe: last.Probe, Losses: last.Losses,
	}
	var parent Key
	for _, n := range nodes {
		if n.Producer != id.Producer {
			return Manifest{}, refuse(ErrIncompatible, "make manifest: node %s is of producer %s, not %s", n.Key, n.Producer, id.Producer)
		}
		if n.Parent != parent {
			return Manifest{}, refuse(ErrCorrupt, "make manifest: node %s follows %s, not %s", n.Key, n.Parent, parent)
		}
		if err := n.Layout.OfRows().differs(last.Layout.OfRows(), "node "+last.Key.String()); err != nil {
			return Manifest{}, fmt.Errorf("make manifest: node %s: %w", n.Key, err)
		}
		m.Chunks = append(m.Chunks, Chunk{Key: n.Key, From: n.From, To: n.To, Tokens: n.Tokens, Rows: n.Rows})
		parent = n.Key
	}
	var err error
	if m.Bytes, err = m.Layout.check(m.Tokens); err != nil {
		return Manifest{}, fmt.Errorf("make manifest: %w", err)
	}
	m = m.normal()
	if err := m.check(); err != nil {
		return Manifest{}, fmt.Errorf("make manifest: %w", err)
	}
	return m, nil
}

// normal has no nil slices: an absent list and an empty one have one form.
func (m Manifest) normal() Manifest {
	m.Identity.Fields = append([]Field{}, m.Identity.Fields...)
	m.Layout = m.Layout.normal()
	chunks := make([]Chunk, len(m.Chunks))
	for i, c := range m.Chunks {
		c.Rows = append([]Blob{}, c.Rows...)
		chunks[i] = c
	}
	m.Chunks = chunks
	m.State = append([]Blob{}, m.State...)
	m.Probe = m.Probe.normal()
	m.Losses = append([]Loss(nil), m.Losses...)
	return m
}

// Encode is the canonical form; its digest names the manifest.
func (m Manifest) Encode() ([]byte, error) {
	b, err := encodeJSON(m.normal())
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	if len(b) > maxManifestBytes {
		return nil, fmt.Errorf("encode manifest of %d chunks: %d bytes, more than %d: a larger grid makes fewer chunks", len(m.Chunks), len(b), maxManifestBytes)
	}
	return b, nil
}

// DecodeManifest reads the stored form. Anything but the canonical form of a consistent manifest is ErrCorrupt.
func DecodeManifest(b []byte) (Manifest, error) {
	var m Manifest
	if err := decodeJSON(b, form{"manifest", ManifestVersion, maxManifestBytes}, &m); err != nil {
		return Manifest{}, err
	}
	canonical, err := m.Encode()
	if err != nil {
		return Manifest{}, refuse(ErrCorrupt, "manifest is damaged: %v", err)
	}
	if err := sameForm("manifest", b, canonical); err != nil {
		return Manifest{}, err
	}
	if err := m.check(); err != nil {
		return Manifest{}, refuse(ErrCorrupt, "manifest is damaged: %v", err)
	}
	return m, nil
}

// check says whether the parts of a manifest agree with each other.
func (m Manifest) check() error {
	if err := m.Identity.check(); err != nil {
		return err
	}
	total, err := m.Layout.check(m.Tokens)
	if err != nil {
		return err
	}
	if total != m.Bytes {
		return fmt.Errorf("it says %d bytes, and its layout has %d", m.Bytes, total)
	}
	at := 0
	for _, c := range m.Chunks {
		if c.From != at || c.To <= c.From || c.To > m.Tokens {
			return fmt.Errorf("chunk [%d, %d) follows token %d of %d", c.From, c.To, at, m.Tokens)
		}
		at = c.To
		if err := checkBlobs(fmt.Sprintf("rows of tokens [%d, %d)", c.From, c.To), c.Rows, m.Layout.chunkBytes(c.From, c.To)); err != nil {
			return err
		}
	}
	if at != m.Tokens || at == 0 {
		return fmt.Errorf("chunks end at token %d of %d", at, m.Tokens)
	}
	if err := checkBlobs("recurrent state", m.State, m.Layout.fixedBytes()); err != nil {
		return err
	}
	if err := m.Layout.checkLosses(m.Losses); err != nil {
		return err
	}
	if m.TokensOnly() {
		if err := m.checkTokensOnly(); err != nil {
			return err
		}
	}
	return m.Probe.check()
}

// check says whether an identity has one spelling, and whether its producer is that of its model. The model's id
// depends on the salt, which is not stored.
func (id Identity) check() error {
	if len(id.Fields) > 64 {
		return fmt.Errorf("identity has %d fields, more than 64", len(id.Fields))
	}
	for _, f := range id.Fields {
		if err := checkText("identity field", f.Name, 64); err != nil {
			return err
		}
		if err := checkText("identity field "+f.Name, f.Value, 4096); err != nil {
			return err
		}
	}
	if err := checkText("class", id.Class, 64); err != nil {
		return err
	}
	if id.Grid < 1 || id.Grid > maxTokens {
		return fmt.Errorf("grid of %d tokens is not possible", id.Grid)
	}
	if producer(id.Model, id.Class, id.Grid) != id.Producer {
		return fmt.Errorf("producer %s is not that of the model, class and grid", id.Producer)
	}
	return nil
}
