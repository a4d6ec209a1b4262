// Package gc removes what no handle, tag or open job needs any more. It owns the gc folder of a tenant, and is the only
// package that deletes blobs, nodes and manifests.
//
// What it promises:
//
//  1. What a root reaches stays: handles that have not expired, handles with a tag, and the handles, documents and jobs
//     that the caller names. Of a document that is being read, every stored node of its prefix stays, too.
//  2. Beside writers, nothing goes before two marks a grace apart have both found it unreachable, and it was not
//     written in between. A put that finds an old object writes it again (cache.RefreshAge), so that a writer that
//     relies on it is seen. Handles that appear during a sweep are marked before the next few objects go.
//  3. Objects go in an order in which nothing that is left names what is gone: handles before manifests, manifests
//     before nodes, nodes before blobs. An interrupted run leaves nothing broken, and the next one ends it.
//  4. Ages are by the store's clock.
//
// It refuses to run when something that a root needs cannot be read, since what lies behind it is not known; and a
// grace that is too short beside writers. What it does not know it leaves alone. Two runs at once do no harm. Start
// reading at Run.
package gc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lector/cache"
)

// LeastGrace is the shortest grace beside writers: they write again what is older than half of it.
const LeastGrace = 2 * cache.RefreshAge

// Open is what jobs that have not ended need.
type Open struct {
	Handles   []cache.Digest // that they resume from
	Documents []cache.Digest // that they read
	Jobs      []string       // whose rolling state stays
}

// Options says how a run goes.
type Options struct {
	// Grace is how old an unreachable object must be, and how far two marks are apart. Default: LeastGrace.
	Grace time.Duration
	// Alone says that nobody else writes to the store: one run suffices, and any grace will do.
	Alone bool
	// DryRun only reports.
	DryRun bool
	// Open asks for the roots beside handles and tags, at every mark; nil: there are none.
	Open func(context.Context) (Open, error)
}

// Count is a number of objects and their bytes.
type Count struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

func (c *Count) add(size int64) {
	c.Objects++
	c.Bytes += size
}

// Report says what a run found and did.
type Report struct {
	Live    Count            `json:"live"`    // reachable
	Waiting Count            `json:"waiting"` // unreachable, but too young or not marked for long enough
	Deleted Count            `json:"deleted"` // or, in a dry run, what would be
	Unknown Count            `json:"unknown"` // of no kind that this lector knows
	Kinds   map[string]Count `json:"kinds"`   // of Deleted
	Next    *time.Time       `json:"next"`    // when some of Waiting may go; nil when nothing waits
	Notes   []string         `json:"notes"`   // what is not as it should be, and did no harm
}

// Run marks, and deletes what an earlier run has marked long enough ago. After an error what was deleted until then
// is gone, and the report says so.
func Run(ctx context.Context, s *cache.Space, opt Options) (Report, error) {
	if opt.Grace == 0 && !opt.Alone {
		opt.Grace = LeastGrace
	}
	if opt.Grace < 0 || opt.Grace < LeastGrace && !opt.Alone {
		return Report{}, fmt.Errorf("collect: a grace of %v is not safe while others write to this store: at least %v", opt.Grace, LeastGrace)
	}
	r := &run{space: s, opt: opt, report: Report{Kinds: map[string]Count{}}}
	err := r.run(ctx)
	if err != nil {
		err = fmt.Errorf("collect: %w", err)
	}
	return r.report, err
}

// run is one call of Run.
type run struct {
	space  *cache.Space
	opt    Options
	report Report
	now    time.Time // by the store's clock, at the beginning
	live   *live
	marks  map[string]time.Time // of earlier runs
}

func (r *run) run(ctx context.Context) error {
	var err error
	if r.now, err = r.clock(ctx); err != nil {
		return err
	}
	if r.marks, err = r.readMarks(ctx); err != nil {
		return err
	}
	if err := r.mark(ctx); err != nil {
		return err
	}
	gone, err := r.sort(ctx)
	if err != nil {
		return err
	}
	if r.opt.DryRun {
		for _, o := range gone {
			r.deleted(o)
		}
		return nil
	}
	if err := r.writeMarks(ctx); err != nil {
		return err
	}
	return r.sweep(ctx, gone)
}

// folder is where this package keeps its own objects.
func (r *run) folder() string { return r.space.TenantName() + "/gc/" }

// clock asks for the store's time: that of an object which is written now.
func (r *run) clock(ctx context.Context) (time.Time, error) {
	name := r.folder() + "clock"
	if err := r.space.Store.Put(ctx, name, strings.NewReader("now\n"), 4, cache.Replace); err != nil {
		return time.Time{}, fmt.Errorf("ask for the store's time: %w", err)
	}
	o, err := r.space.Store.Stat(ctx, name)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the store's time: %w", err)
	}
	return o.Time, nil
}

func (r *run) note(format string, args ...any) {
	r.report.Notes = append(r.report.Notes, fmt.Sprintf(format, args...))
}
