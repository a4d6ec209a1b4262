package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"strings"
	"time"
)

// StoredHandle is a handle as it lies in the store.
type StoredHandle struct {
	Digest Digest
	Handle Handle
	Stored time.Time // by the store's clock
}

// Name is the printable form.
func (h StoredHandle) Name() string { return HandleName(h.Digest) }

// PutHandle stores a handle and returns the digest that names it. Its manifest must be stored (promise 1) and its
// tenant the space's own. Storing it again changes nothing.
func (s *Space) PutHandle(ctx context.Context, h Handle) (Digest, error) {
	if err := s.check(""); err != nil {
		return Digest{}, err
	}
	o, d, err := s.encodedHandle(h)
	if err != nil {
		return Digest{}, err
	}
	if _, err := s.Store.Stat(ctx, s.manifestName(h.Manifest)); err != nil {
		return Digest{}, fmt.Errorf("store handle: its manifest %s: %w", s.manifestName(h.Manifest), err)
	}
	return d, s.putNamed(ctx, o)
}

// encodedHandle is a handle on its way into the store, checked.
func (s *Space) encodedHandle(h Handle) (small, Digest, error) {
	if err := h.check(); err != nil {
		return small{}, Digest{}, fmt.Errorf("store handle: %w", err)
	}
	if h.Tenant != s.TenantName() {
		return small{}, Digest{}, fmt.Errorf("store handle: it is of tenant %s, and this is the space of %s", h.Tenant, s.TenantName())
	}
	b := h.Encode()
	d := Sum(b)
	return small{name: s.handleName(d), bytes: b, limit: maxHandleBytes}, d, nil
}

// Handle reads and checks a handle; whether its time is over is for Valid to say.
// Errors: ErrNotFound, ErrCorrupt, ErrIncompatible for a newer version.
func (s *Space) Handle(ctx context.Context, d Digest) (Handle, error) {
	if err := s.check(""); err != nil {
		return Handle{}, err
	}
	b, err := s.readNamed(ctx, s.handleName(d), d, maxHandleBytes)
	if errors.Is(err, ErrNotFound) && !errors.Is(err, ErrSealed) {
		return Handle{}, unknownHandle(HandleName(d))
	}
	if err != nil {
		return Handle{}, fmt.Errorf("read handle %s: %w", HandleName(d), err)
	}
	h, err := DecodeHandle(b)
	if err != nil {
		return Handle{}, fmt.Errorf("read handle %s: %w", HandleName(d), err)
	}
	if h.Tenant != s.TenantName() {
		return Handle{}, refuse(ErrIncompatible, "handle %s belongs to tenant %s, not %s", HandleName(d), h.Tenant, s.TenantName())
	}
	return h, nil
}

func unknownHandle(name string) error {
	return refuse(ErrNotFound, "handle %s is not known to this store: lector snapshot ls shows those that are", name)
}

// FindHandle reads the handle of a printed name, or of a beginning of one (at least HandleNameMin letters behind
// "lh1-") that only one stored handle has.
// Errors: ErrHandle for a mistyped, too short or ambiguous name, and those of Handle.
func (s *Space) FindHandle(ctx context.Context, name string) (Digest, Handle, error) {
	letters, err := handleText(name)
	if err != nil {
		return Digest{}, Handle{}, err
	}
	if len(letters) < HandleNameMin {
		return Digest{}, Handle{}, refuse(ErrHandle, "handle %.80q is too short: give at least %d letters after %s", name, HandleNameMin, handlePrefix)
	}
	var d Digest
	if len(letters) == handleLetters {
		d, err = ParseHandleName(name)
	} else {
		d, err = s.completeHandle(ctx, letters)
	}
	if err != nil {
		return Digest{}, Handle{}, err
	}
	h, err := s.Handle(ctx, d)
	return d, h, err
}

// completeHandle finds the one stored handle whose name begins with the letters.
func (s *Space) completeHandle(ctx context.Context, letters string) (found Digest, err error) {
	if err := s.check(""); err != nil {
		return found, err
	}
	count := 0
	for object, err := range s.Store.List(ctx, s.TenantName()+"/handles/"+handleHex(letters)) {
		if err != nil {
			return found, fmt.Errorf("list handles: %w", err)
		}
		d, err := ParseDigest(path.Base(object.Name))
		if err != nil || !strings.HasPrefix(HandleName(d), handlePrefix+letters) {
			continue // not a handle, or of another name in the last bits
		}
		found = d
		count++
	}
	switch count {
	case 0:
		return found, unknownHandle(handlePrefix + letters)
	case 1:
		return found, nil
	}
	return found, refuse(ErrHandle, "handle %s%s is the beginning of %d handles: give more of it", handlePrefix, letters, count)
}

// Handles yields every stored handle of the tenant in order of digest, expired ones too. One that is damaged is an
// error beside its digest, and the listing goes on; an error without a digest ends it.
func (s *Space) Handles(ctx context.Context) iter.Seq2[StoredHandle, error] {
	return func(yield func(StoredHandle, error) bool) {
		if err := s.check(""); err != nil {
			yield(StoredHandle{}, err)
			return
		}
		for object, err := range s.Store.List(ctx, s.TenantName()+"/handles/") {
			if err != nil {
				yield(StoredHandle{}, fmt.Errorf("list handles: %w", err))
				return
			}
			d, err := ParseDigest(path.Base(object.Name))
			if err != nil {
				continue // not ours: no handle has that name
			}
			h, err := s.Handle(ctx, d)
			if !yield(StoredHandle{d, h, object.Time}, err) {
				return
			}
		}
	}
}
