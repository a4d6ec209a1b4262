package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"lector/cache"
)

// Probe does on the real bucket what a store needs: put, put if absent, ranged get, list, delete. The error lists
// every one that does not work, so that one run tells what a bucket's policy or its store lacks. It leaves nothing.
func (s *Store) Probe(ctx context.Context) error {
	p := probe{store: s, ctx: ctx, name: "probe." + strings.ToLower(rand.Text()), body: []byte("lector probes this bucket")}
	if err := p.put(); err != nil {
		return fmt.Errorf("probe %s: cannot put: %w", s, err)
	}
	var missing []error
	for _, step := range []struct {
		what string
		do   func() error
	}{{"put if absent", p.putAgain}, {"get ranges", p.get}, {"list", p.list}, {"delete", p.delete}} {
		if err := step.do(); err != nil {
			missing = append(missing, fmt.Errorf("cannot %s: %w", step.what, err))
		}
	}
	if err := errors.Join(missing...); err != nil {
		return fmt.Errorf("probe %s: %w", s, err)
	}
	return nil
}

// probe is one object on its way through a store.
type probe struct {
	store *Store
	ctx   context.Context
	name  string
	body  []byte
}

func (p probe) put() error {
	return p.store.Put(p.ctx, p.name, bytes.NewReader(p.body), int64(len(p.body)), cache.Replace)
}

func (p probe) putAgain() error {
	err := p.store.Put(p.ctx, p.name, bytes.NewReader(p.body), int64(len(p.body)), cache.IfAbsent)
	switch {
	case errors.Is(err, cache.ErrExists):
		return nil
	case err == nil:
		return errors.New("the store overwrote an object that was there: it ignores If-None-Match, and two writers could undo each other's work")
	}
	return err
}

func (p probe) get() error {
	const off, n = 7, 6
	r, err := p.store.Get(p.ctx, p.name, off, n)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if want := p.body[off : off+n]; !bytes.Equal(got, want) {
		return fmt.Errorf("the store answered %q for the range of %q", got, want)
	}
	return nil
}

func (p probe) list() error {
	for o, err := range p.store.List(p.ctx, p.name) {
		if err != nil {
			return err
		}
		if o.Name == p.name && o.Size == int64(len(p.body)) {
			return nil
		}
	}
	return errors.New("the store does not list an object that it took")
}

func (p probe) delete() error {
	if err := p.store.Delete(p.ctx, p.name); err != nil {
		return err
	}
	if _, err := p.store.Stat(p.ctx, p.name); !errors.Is(err, cache.ErrNotFound) {
		return fmt.Errorf("the object is still there (%v)", err)
	}
	return nil
}
