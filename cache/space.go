package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// DefaultTenant is the tenant of a Space that names none.
const DefaultTenant = "default"

// maxDocumentBytes bounds a stored document: 16 million tokens.
const maxDocumentBytes = MaxBlob

// Space is one tenant's part of a store: every read verifies, every write is durable when it returns. It may be
// used from any goroutine, and copied.
type Space struct {
	Store  Store
	Tenant string           // "" is DefaultTenant
	Spool  Stager           // where chunks wait for a store that is slow; nil: in the store, where that can keep them
	Now    func() time.Time // the store's clock; nil: this machine's, which must be right to the hour

	blobLimit int64 // tests cut streams into smaller blobs; 0 is MaxBlob
}

// TenantName is the name that objects live under.
func (s *Space) TenantName() string {
	if s.Tenant == "" {
		return DefaultTenant
	}
	return s.Tenant
}

// The names of the stored objects.
func (s *Space) blobName(d Digest) string     { return s.TenantName() + "/blobs/" + d.String() }
func (s *Space) nodeName(k Key) string        { return s.TenantName() + "/nodes/" + k.String() }
func (s *Space) keepName(k Key) string        { return s.TenantName() + "/keep/" + k.String() }
func (s *Space) manifestName(d Digest) string { return s.TenantName() + "/manifests/" + d.String() }
func (s *Space) handleName(d Digest) string   { return s.TenantName() + "/handles/" + d.String() }
func (s *Space) documentName(d Digest) string { return s.TenantName() + "/documents/" + d.String() }
func (s *Space) rollingFolder(job string) string {
	return s.TenantName() + "/rolling/" + job + "/"
}

// check refuses a tenant or a job that is more than one element of a name. job may be empty.
func (s *Space) check(job string) error {
	if !validElement(s.TenantName()) {
		return refuse(ErrName, "tenant %.80q is not a name of letters, digits, '.', '_' and '-'", s.Tenant)
	}
	if job != "" && !validElement(job) {
		return refuse(ErrName, "job %.80q is not a name of letters, digits, '.', '_' and '-'", job)
	}
	return nil
}

// read returns an object of at most limit bytes.
func (s *Space) read(ctx context.Context, name string, limit int64) (_ []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r, err := s.Store.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := r.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("read %s: %w", name, cerr)
		}
	}()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(b)) > limit {
		return nil, refuse(ErrCorrupt, "object %s is damaged: it is larger than %d bytes", name, limit)
	}
	return b, nil
}

// readNamed returns an object whose name ends in its digest.
func (s *Space) readNamed(ctx context.Context, name string, d Digest, limit int64) ([]byte, error) {
	b, err := s.read(ctx, name, limit)
	if err != nil {
		return nil, err
	}
	if got := Sum(b); got != d {
		return nil, refuse(ErrCorrupt, "object %s is damaged: its %d bytes have the digest %s", name, len(b), got)
	}
	return b, nil
}

// putBlob puts bytes under a name that holds their digest, and says whether it wrote. A hit checks the size that
// is there, since a cut upload may have left a short object.
func (s *Space) putBlob(ctx context.Context, name string, size int64, b Staged) (wrote bool, err error) {
	err = b.Put(ctx, name, IfAbsent)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, ErrExists) {
		return false, err
	}
	object, err := s.Store.Stat(ctx, name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	if err == nil && object.Size == size && s.Age(object) < RefreshAge {
		return false, nil
	}
	if err := b.Put(ctx, name, Replace); err != nil {
		return false, fmt.Errorf("store %s again in place of a cut or an old one: %w", name, err)
	}
	return true, nil
}

// Age is how long ago an object was written, by the store's clock.
func (s *Space) Age(o Object) time.Duration {
	if s.Now == nil {
		return time.Since(o.Time)
	}
	return s.Now().Sub(o.Time)
}

// small is a small object on its way into the store.
type small struct {
	name   string
	bytes  []byte
	limit  int64  // of what may stand under its name
	staged Staged // nil: it is put from memory
}

func (s *Space) put(ctx context.Context, o small, how PutMode) error {
	if o.staged != nil {
		return o.staged.Put(ctx, o.name, how)
	}
	return s.Store.Put(ctx, o.name, bytes.NewReader(o.bytes), int64(len(o.bytes)), how)
}

// refresh writes a small object again that stands with these bytes, when it is old or has just gone.
func (s *Space) refresh(ctx context.Context, o small) error {
	there, err := s.Store.Stat(ctx, o.name)
	if err == nil && s.Age(there) < RefreshAge || err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return s.put(ctx, o, Replace)
}

// putOnce puts a small object if its name is free, and returns the bytes that stand. A lost answer to our own put
// is read back, and equal is success.
func (s *Space) putOnce(ctx context.Context, o small) (standing []byte, err error) {
	put := s.put(ctx, o, IfAbsent)
	if put == nil {
		return o.bytes, nil
	}
	standing, err = s.read(ctx, o.name, o.limit)
	if errors.Is(put, ErrExists) {
		if err == nil && bytes.Equal(standing, o.bytes) {
			err = s.refresh(ctx, o)
		}
		return standing, err
	}
	if err == nil && bytes.Equal(standing, o.bytes) {
		// It landed. Asking again makes sure that it is durable, too.
		again := s.put(ctx, o, IfAbsent)
		if again == nil || errors.Is(again, ErrExists) {
			return o.bytes, nil
		}
	}
	return nil, put
}

// putNamed is putOnce for an object whose name holds its digest: what stands there and differs is damaged, and a
// cut one is written again.
func (s *Space) putNamed(ctx context.Context, o small) error {
	standing, err := s.putOnce(ctx, o)
	switch {
	case err != nil:
		return err
	case bytes.Equal(standing, o.bytes):
		return nil
	case len(standing) == len(o.bytes):
		return refuse(ErrCorrupt, "object %s is damaged: its %d bytes have the digest %s: delete it, then repeat this",
			o.name, len(standing), Sum(standing))
	}
	if err := s.put(ctx, o, Replace); err != nil {
		return fmt.Errorf("store %s again in place of a cut one: %w", o.name, err)
	}
	return nil
}

// PutDocument stores the token ids of a document, so that any worker can read them, and returns their digest.
// Storing the same document again changes nothing.
func (s *Space) PutDocument(ctx context.Context, tokens []int32) (Digest, error) {
	if err := s.check(""); err != nil {
		return Digest{}, err
	}
	if len(tokens) == 0 || len(tokens) > maxDocumentBytes/4 {
		return Digest{}, fmt.Errorf("store document: %d tokens, not 1 to %d", len(tokens), maxDocumentBytes/4)
	}
	for i, t := range tokens {
		if t < 0 {
			return Digest{}, fmt.Errorf("store document: token %d has the id %d", i, t)
		}
	}
	b := tokenBytes(tokens)
	d := Sum(b)
	return d, s.putNamed(ctx, small{name: s.documentName(d), bytes: b, limit: maxDocumentBytes})
}

// Document reads the token ids of a stored document. Errors: ErrNotFound, ErrCorrupt.
func (s *Space) Document(ctx context.Context, d Digest) ([]int32, error) {
	if err := s.check(""); err != nil {
		return nil, err
	}
	name := s.documentName(d)
	b, err := s.readNamed(ctx, name, d, maxDocumentBytes)
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	if len(b) == 0 || len(b)%4 != 0 {
		return nil, refuse(ErrCorrupt, "document %s is damaged: %d bytes are no token ids", name, len(b))
	}
	tokens := tokensOf(b)
	if i := slices.IndexFunc(tokens, func(t int32) bool { return t < 0 }); i >= 0 {
		return nil, refuse(ErrCorrupt, "document %s is damaged: token %d has the id %d", name, i, tokens[i])
	}
	return tokens, nil
}

// Node reads and checks the node of a key. Errors: ErrNotFound, ErrCorrupt.
func (s *Space) Node(ctx context.Context, key Key) (Node, error) {
	b, err := s.read(ctx, s.nodeName(key), maxNodeBytes)
	if err != nil {
		return Node{}, err
	}
	return s.decodeNode(key, b)
}

// decodeNode reads a standing node and checks that it is the one its name says.
func (s *Space) decodeNode(key Key, b []byte) (Node, error) {
	n, err := DecodeNode(b)
	if err != nil {
		return Node{}, fmt.Errorf("read %s: %w: delete it, then read the document again", s.nodeName(key), err)
	}
	if n.Key != key {
		return Node{}, refuse(ErrCorrupt, "object %s is damaged: it holds the node %s", s.nodeName(key), n.Key)
	}
	return n, nil
}

// PutManifest makes the manifest of a chain of nodes, stores it, reads it back and verifies it: what it names is
// stored with the right sizes, the recurrent state kept. Storing it again changes nothing.
// Errors: ErrIncompatible, ErrCorrupt, ErrNotFound naming the blob that is missing.
func (s *Space) PutManifest(ctx context.Context, id Identity, nodes []Node) (Manifest, Digest, error) {
	if err := s.check(""); err != nil {
		return Manifest{}, Digest{}, err
	}
	m, err := NewManifest(id, nodes)
	if err != nil {
		return Manifest{}, Digest{}, err
	}
	return s.putManifest(ctx, m)
}

// putManifest stores a manifest whose blobs are stored, and reads it back.
func (s *Space) putManifest(ctx context.Context, m Manifest) (Manifest, Digest, error) {
	if err := s.Complete(ctx, m); err != nil {
		return Manifest{}, Digest{}, fmt.Errorf("store manifest of %d tokens: %w", m.Tokens, err)
	}
	o, d, err := s.encoded(m)
	if err != nil {
		return Manifest{}, Digest{}, err
	}
	decoded := decodeSoon(o.bytes)
	if err := s.putNamed(ctx, o); err != nil {
		return Manifest{}, Digest{}, err
	}
	m, err = s.readBack(ctx, d, decoded)
	return m, d, err
}

// decodeSoon decodes a manifest beside what the caller does.
func decodeSoon(b []byte) func() (Manifest, error) {
	type answer struct {
		m   Manifest
		err error
	}
	out := make(chan answer, 1)
	go func() {
		m, err := DecodeManifest(b)
		out <- answer{m, err}
	}()
	return func() (Manifest, error) {
		a := <-out
		return a.m, a.err
	}
}

// readBack is the manifest as it lies in the store now. The bytes of that digest are decoded already.
func (s *Space) readBack(ctx context.Context, d Digest, decoded func() (Manifest, error)) (Manifest, error) {
	name := s.manifestName(d)
	if _, err := s.readNamed(ctx, name, d, maxManifestBytes); err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	m, err := decoded()
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest %s: %w", name, err)
	}
	return m, nil
}

// encoded is a manifest on its way into the store.
func (s *Space) encoded(m Manifest) (small, Digest, error) {
	b, err := m.Encode()
	d := Sum(b)
	return small{name: s.manifestName(d), bytes: b, limit: maxManifestBytes}, d, err
}

// Complete says whether every blob of a manifest is stored under its own name with the right size; it reads none.
// Errors: ErrNotFound naming one that is missing or cut.
func (s *Space) Complete(ctx context.Context, m Manifest) error {
	return m.EachPiece(ctx, func(ctx context.Context, p Piece) error {
		ok, err := s.hasBlob(ctx, "", p.Blob)
		if err == nil && !ok {
			err = refuse(ErrNotFound, "%s is not kept whole in the store", s.pieceName(p))
		}
		return err
	})
}

// Manifest reads and checks a manifest. Errors: ErrNotFound, ErrCorrupt, ErrIncompatible for a newer version.
func (s *Space) Manifest(ctx context.Context, d Digest) (Manifest, error) {
	if err := s.check(""); err != nil {
		return Manifest{}, err
	}
	name := s.manifestName(d)
	b, err := s.readNamed(ctx, name, d, maxManifestBytes)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	m, err := DecodeManifest(b)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest %s: %w", name, err)
	}
	return m, nil
}
