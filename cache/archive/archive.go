// Package archive carries one snapshot out of a store and into another: as one safetensors file that any program can
// open, or by way of a folder that is itself a store.
//
// What it promises:
//
//  1. A file holds every region of the state as a tensor under its own name, and, as metadata, the handle and the
//     manifest in their canonical forms. Every byte was checked against its digest before it was written.
//  2. What is taken in is checked whole before anything of it is stored: sizes, digests, token ids and keys. Then blobs
//     are stored before the manifest and the manifest before the handle, each checked once more.
//  3. Taking in the same snapshot again changes nothing.
//  4. Signatures go along from store to store while the handle stays the same; a file has none.
//
// It never carries nodes: a node speaks for every document with its prefix, and a stranger's file must not. It refuses a
// file that is not exactly what this package would write for its handle and manifest. Functions may be called from any
// goroutine. Start reading at Copy; file.go has the layout of a file.
package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"lector/cache"
)

// Carried says what a copy did.
type Carried struct {
	Handle cache.Digest // under the new tenant
	Tokens int
	Blobs  int   // of the snapshot
	Bytes  int64 // of the snapshot

	TokensOnly bool // it holds token ids and no state
}

// Copy carries the snapshot of a handle from one space to another. The handle gets the other tenant's name, and its
// digest differs then. Errors: those of cache.Space.Verify, naming what is damaged; nothing is stored after one.
func Copy(ctx context.Context, from, to *cache.Space, handle cache.Digest) (Carried, error) {
	h, m, err := open(ctx, from, handle)
	if err != nil {
		return Carried{}, err
	}
	report, err := from.Verify(ctx, m)
	if err != nil {
		return Carried{}, err
	}
	if err := copyBlobs(ctx, from, to, m); err != nil {
		return Carried{}, err
	}
	body, err := m.Encode()
	if err != nil {
		return Carried{}, err
	}
	if err := place(ctx, to, "manifests", body); err != nil {
		return Carried{}, err
	}
	h.Tenant = to.TenantName()
	d, err := to.PutHandle(ctx, h)
	if err == nil && d == handle {
		err = carrySignatures(ctx, from, to, d)
	}
	return Carried{Handle: d, Tokens: m.Tokens, Blobs: report.Blobs, Bytes: report.Bytes, TokensOnly: m.TokensOnly()}, err
}

// maxSignature bounds what is carried of a signature; who verifies one says whether it is good.
const maxSignature = 1 << 10

// carrySignatures takes along who vouches for a handle. Signatures that stand already are left alone.
func carrySignatures(ctx context.Context, from, to *cache.Space, d cache.Digest) error {
	folder := from.TenantName() + "/signatures/" + d.String() + "/"
	for o, err := range from.Store.List(ctx, folder) {
		if err != nil {
			return fmt.Errorf("list signatures: %w", err)
		}
		if o.Size > maxSignature {
			continue
		}
		r, err := from.Store.Get(ctx, o.Name, 0, o.Size)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("read %s: %w", o.Name, err)
		}
		name := to.TenantName() + "/signatures/" + d.String() + "/" + strings.TrimPrefix(o.Name, folder)
		err = to.Store.Put(ctx, name, bytes.NewReader(b), int64(len(b)), cache.IfAbsent)
		if err != nil && !errors.Is(err, cache.ErrExists) {
			return err
		}
	}
	return nil
}

// open reads a handle and its manifest, and holds them against each other.
func open(ctx context.Context, s *cache.Space, d cache.Digest) (cache.Handle, cache.Manifest, error) {
	h, err := s.Handle(ctx, d)
	if err != nil {
		return h, cache.Manifest{}, err
	}
	m, err := s.Manifest(ctx, h.Manifest)
	if err != nil {
		return h, m, err
	}
	if h.Model != m.Identity.Model || h.Tokens != m.Tokens {
		return h, m, fmt.Errorf("handle %s is of model %s with %d tokens, and its manifest of %s with %d: %w",
			cache.HandleName(d), h.Model, h.Tokens, m.Identity.Model, m.Tokens, cache.ErrCorrupt)
	}
	return h, m, nil
}

// copyBlobs carries every blob of a manifest from one store to another.
func copyBlobs(ctx context.Context, from, to *cache.Space, m cache.Manifest) error {
	return m.EachPiece(ctx, func(ctx context.Context, p cache.Piece) error {
		b, err := readBlob(ctx, from, p.Blob)
		if err != nil {
			return err
		}
		return place(ctx, to, "blobs", b)
	})
}

// readBlob reads a blob and checks its size and digest.
func readBlob(ctx context.Context, s *cache.Space, blob cache.Blob) ([]byte, error) {
	name := s.TenantName() + "/blobs/" + blob.Digest.String()
	r, err := s.Store.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	b := make([]byte, blob.Size)
	_, err = io.ReadFull(r, b)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if got := cache.Sum(b); got != blob.Digest {
		return nil, fmt.Errorf("blob %s has the digest %s: %w", name, got, cache.ErrCorrupt)
	}
	return b, nil
}

// place stores bytes under their digest. What stands there with another size, or is so old that a collector may be
// after it, is written again.
func place(ctx context.Context, s *cache.Space, kind string, b []byte) error {
	name, size := s.TenantName()+"/"+kind+"/"+cache.Sum(b).String(), int64(len(b))
	err := s.Store.Put(ctx, name, bytes.NewReader(b), size, cache.IfAbsent)
	if !errors.Is(err, cache.ErrExists) {
		return err
	}
	o, err := s.Store.Stat(ctx, name)
	if err != nil && !errors.Is(err, cache.ErrNotFound) {
		return err
	}
	if err == nil && o.Size == size && s.Age(o) < cache.RefreshAge {
		return nil
	}
	return s.Store.Put(ctx, name, bytes.NewReader(b), size, cache.Replace)
}
