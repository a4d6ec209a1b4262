package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lector/cache"
)

// kinds lists the folders that are collected, in the order in which objects go: what names before what is named.
func kinds() []string {
	return []string{"signatures", "handles", "manifests", "keep", "nodes", "rolling", "results", "documents", "blobs"}
}

// lookAgain is after how many deletions a sweep looks for new handles.
const lookAgain = 64

// sort lists the tenant's objects, counts them, renews the marks, and returns what may go now, in order.
func (r *run) sort(ctx context.Context) ([]cache.Object, error) {
	fresh := map[string]time.Time{}
	var gone []cache.Object
	for o, err := range r.space.Store.List(ctx, r.space.TenantName()+"/") {
		if err != nil {
			return nil, fmt.Errorf("list objects: %w", err)
		}
		switch kind, live := r.kind(o.Name); {
		case kind == "":
			r.report.Unknown.add(o.Size)
		case live:
			r.report.Live.add(o.Size)
		case r.ripe(o, fresh):
			gone = append(gone, o)
		default:
			r.report.Waiting.add(o.Size)
		}
	}
	r.marks = fresh
	slices.SortStableFunc(gone, func(a, b cache.Object) int { return r.order(a.Name) - r.order(b.Name) })
	return gone, nil
}

// ripe says whether an unreachable object may go; otherwise it marks it, or keeps the mark that it has.
func (r *run) ripe(o cache.Object, fresh map[string]time.Time) bool {
	old := r.now.Sub(o.Time) >= r.opt.Grace
	if r.opt.Alone {
		if !old {
			r.next(o.Time)
		}
		return old
	}
	marked, ok := r.marks[o.Name]
	if !ok || marked.Before(o.Time) || marked.After(r.now) {
		marked = r.now // never marked, or written since
	}
	if old && r.now.Sub(marked) >= r.opt.Grace {
		fresh[o.Name] = marked // until it is gone
		return true
	}
	fresh[o.Name] = marked
	r.next(marked)
	return false
}

// next notes when something that was marked or written at a time may go.
func (r *run) next(since time.Time) {
	if at := since.Add(r.opt.Grace).UTC(); r.report.Next == nil || at.Before(*r.report.Next) {
		r.report.Next = &at
	}
}

// kind is the folder of an object, "" for one that is not collected, and whether the object is reachable.
func (r *run) kind(name string) (kind string, live bool) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(name, r.space.TenantName()+"/"), "/")
	if kind == "tags" || kind == "gc" {
		return kind, true
	}
	if kind == "rolling" {
		job, _, ok := strings.Cut(rest, "/")
		if !ok {
			return "", true
		}
		return kind, r.live.jobs[job]
	}
	if kind == "results" { // once a job has ended, its result is there for who asks until the grace is over
		return kind, r.live.jobs[rest]
	}
	if kind == "signatures" {
		rest, _, _ = strings.Cut(rest, "/")
	}
	d, err := cache.ParseDigest(rest)
	if err != nil {
		return "", true
	}
	switch kind {
	case "handles", "signatures":
		return kind, r.live.handles[d]
	case "manifests":
		return kind, r.live.manifests[d]
	case "documents":
		return kind, r.live.documents[d]
	case "blobs":
		return kind, r.live.blobs[d]
	case "nodes", "keep":
		return kind, r.live.nodes[cache.Key(d)]
	}
	return "", true
}

// order is the place of an object's kind among kinds.
func (r *run) order(name string) int {
	kind, _ := r.kind(name)
	return slices.Index(kinds(), kind)
}

// sweep deletes what may go, unless it was written meanwhile or something new reaches it.
func (r *run) sweep(ctx context.Context, gone []cache.Object) error {
	for i, o := range gone {
		if i%lookAgain == 0 {
			if err := r.markHandles(ctx); err != nil {
				return err
			}
		}
		if _, live := r.kind(o.Name); live {
			r.report.Live.add(o.Size)
			continue
		}
		now, err := r.space.Store.Stat(ctx, o.Name)
		if errors.Is(err, cache.ErrNotFound) {
			continue // another run was faster
		}
		if err != nil {
			return err
		}
		if !now.Time.Equal(o.Time) {
			r.report.Waiting.add(o.Size)
			continue
		}
		if err := r.space.Store.Delete(ctx, o.Name); err != nil {
			return err
		}
		r.deleted(o)
	}
	return nil
}

func (r *run) deleted(o cache.Object) {
	r.report.Deleted.add(o.Size)
	kind, _ := r.kind(o.Name)
	c := r.report.Kinds[kind]
	c.add(o.Size)
	r.report.Kinds[kind] = c
}
