package cachetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"sync"

	"lector/cache"
)

// ErrInjected is the failure of a Fault that names none.
var ErrInjected = errors.New("injected failure")

// Op is a call of a Store.
type Op string

// The calls.
const (
	Put    Op = "put"
	Get    Op = "get"
	Stat   Op = "stat"
	List   Op = "list"
	Delete Op = "delete"
)

// Action is what a Fault does to the call that it meets.
type Action string

// The actions.
const (
	ErrorBefore Action = "error before" // the call does nothing and fails
	ErrorAfter  Action = "error after"  // the call takes effect, and its answer is lost
	ShortWrite  Action = "short write"  // a put leaves the first half of the object and fails
	FlipByte    Action = "flip byte"    // a get gives the object with its middle bit flipped
	Truncate    Action = "truncate"     // a get gives the object without its last byte
)

// Fault is a rule as data: the Nth call of Op on a name that matches Pattern meets Action.
type Fault struct {
	Op      Op
	Pattern string // of path.Match on the whole name, such as "*/nodes/*"; "" matches all
	Nth     int    // from 1; 0 is every one
	Action  Action
	Err     error // of the actions that fail; nil is ErrInjected
}

// String prints the rule, for the message of a failing test.
func (f Fault) String() string {
	which := "every"
	if f.Nth > 0 {
		which = fmt.Sprintf("#%d", f.Nth)
	}
	return fmt.Sprintf("%s %s of %q: %s", which, f.Op, f.Pattern, f.Action)
}

func (f Fault) err(name string) error {
	err := f.Err
	if err == nil {
		err = ErrInjected
	}
	return fmt.Errorf("%s %s (%s): %w", f.Op, name, f.Action, err)
}

// Faulty passes calls on to Store but for those that a rule meets. The first rule that meets a call has it.
type Faulty struct {
	Store cache.Store
	Rules []Fault

	mu    sync.Mutex
	seen  map[int]int // calls that matched, by place of the rule
	fired []Fault
}

var _ cache.Store = (*Faulty)(nil)

// NewFaulty wraps a store.
func NewFaulty(store cache.Store, rules ...Fault) *Faulty { return &Faulty{Store: store, Rules: rules} }

// Fired lists the rules that met a call, in the order in which they did: a test that means to inject a failure
// checks that it happened.
func (f *Faulty) Fired() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Fault(nil), f.fired...)
}

// meet counts the call against every rule, and returns the first that has it.
func (f *Faulty) meet(op Op, name string) (hit Fault, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = make(map[int]int)
	}
	for i, rule := range f.Rules {
		if match, err := path.Match(rule.Pattern, name); rule.Op != op || rule.Pattern != "" && (err != nil || !match) {
			continue
		}
		f.seen[i]++
		if !ok && (rule.Nth == 0 || rule.Nth == f.seen[i]) {
			hit, ok = rule, true
			f.fired = append(f.fired, rule)
		}
	}
	return hit, ok
}

// Put implements cache.Store.
func (f *Faulty) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	rule, ok := f.meet(Put, name)
	if !ok {
		return f.Store.Put(ctx, name, body, size, how)
	}
	switch rule.Action {
	case ErrorAfter:
		if err := f.Store.Put(ctx, name, body, size, how); err != nil {
			return err
		}
	case ShortWrite:
		half := make([]byte, size/2)
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.ReadFull(body, half); err != nil {
			return err
		}
		if err := f.Store.Put(ctx, name, bytes.NewReader(half), size/2, how); err != nil {
			return err
		}
	}
	return rule.err(name)
}

// Get implements cache.Store.
func (f *Faulty) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	rule, ok := f.meet(Get, name)
	if !ok {
		return f.Store.Get(ctx, name, off, n)
	}
	if rule.Action != FlipByte && rule.Action != Truncate {
		return nil, rule.err(name)
	}
	r, err := f.Store.Get(ctx, name, off, n)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if len(b) > 0 && rule.Action == FlipByte {
		b[len(b)/2] ^= 0x10
	}
	if len(b) > 0 && rule.Action == Truncate {
		b = b[:len(b)-1]
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// Stat implements cache.Store.
func (f *Faulty) Stat(ctx context.Context, name string) (cache.Object, error) {
	if rule, ok := f.meet(Stat, name); ok {
		return cache.Object{}, rule.err(name)
	}
	return f.Store.Stat(ctx, name)
}

// List implements cache.Store.
func (f *Faulty) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	if rule, ok := f.meet(List, prefix); ok {
		return func(yield func(cache.Object, error) bool) { yield(cache.Object{}, rule.err(prefix)) }
	}
	return f.Store.List(ctx, prefix)
}

// Delete implements cache.Store.
func (f *Faulty) Delete(ctx context.Context, name string) error {
	rule, ok := f.meet(Delete, name)
	if !ok {
		return f.Store.Delete(ctx, name)
	}
	if rule.Action == ErrorAfter {
		if err := f.Store.Delete(ctx, name); err != nil {
			return err
		}
	}
	return rule.err(name)
}
