package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

// Keys of the bucket of jobs; no job can have one as its id.
const (
	quotasKey = "queue.quotas"  // quotas by tenant
	tokensKey = "queue.tokens." // of a tenant: what it has submitted today, and its open jobs where they are bounded
)

const (
	quotaAge = 2 * time.Second // after which quotas are read again, and open jobs counted again where there was no room
	busyAge  = time.Second     // within which a tenant whose places were all taken is not looked at again
)

// quotaState is what a queue remembers of quotas, guarded by its lock.
type quotaState struct {
	read   time.Time
	quotas map[string]queue.Quota
	set    time.Time            // when the quotas were changed last, by the server's clock
	full   map[string]time.Time // until when a tenant has no room for more open jobs
	busy   map[string]time.Time // until when
}

// tenantCount is what a tenant has submitted on one day, and its open jobs. It is changed by compare-and-set only: of
// submits at the same moment each counts those before it.
type tenantCount struct {
	Day    string     `json:"day"` // of UTC, by the server's clock
	Tokens int64      `json:"tokens"`
	Open   *openCount `json:"open,omitempty"` // nil where a submit found no bound on them
}

// SetQuota changes the one record of all quotas by compare-and-set.
func (q *Queue) SetQuota(ctx context.Context, tenant string, quota queue.Quota) error {
	if err := errors.Join(queue.CheckTenant(tenant), quota.Validate()); err != nil {
		return fmt.Errorf("set quota: %w", err)
	}
	doing := "set the quota of tenant " + tenant
	err := q.edit(ctx, quotasKey, doing, func(b []byte) (any, error) {
		all := map[string]queue.Quota{}
		if err := decodeSetting(b, &all, "quotas"); err != nil {
			return nil, err
		}
		if all[tenant] = quota; quota == (queue.Quota{}) {
			delete(all, tenant)
		}
		return all, nil
	})
	q.mu.Lock()
	q.quota.read = time.Time{}
	clear(q.quota.full)
	clear(q.quota.busy)
	q.mu.Unlock()
	return err
}

// edit changes a setting in the bucket of jobs, as often as somebody else is faster. change gets nil where there is none.
func (q *Queue) edit(ctx context.Context, key, doing string, change func([]byte) (any, error)) error {
	call, cancel := q.call(ctx)
	defer cancel()
	for {
		var value []byte
		revision := uint64(0)
		entry, err := q.jobs.Get(call, key)
		switch {
		case err == nil:
			value, revision = entry.Value(), entry.Revision()
		case !errors.Is(err, jetstream.ErrKeyNotFound):
			return q.fail(ctx, err, "%s", doing)
		}
		after, err := change(value)
		if err != nil {
			return err
		}
		b, err := json.Marshal(after)
		if err != nil {
			return fmt.Errorf("%s: encode: %w", doing, err)
		}
		if revision == 0 {
			_, err = q.jobs.Create(call, key, b)
		} else {
			_, err = q.jobs.Update(call, key, b, revision)
		}
		if err == nil {
			return nil
		}
		if !isConflict(err) {
			return q.fail(ctx, err, "%s", doing)
		}
	}
}

func decodeSetting(b []byte, out any, name string) error {
	if b == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("decode %s of the queue: %w", name, err)
	}
	return nil
}

// setting reads a setting from the bucket of jobs and says when it was written; where there is none, out stays as it is.
func (q *Queue) setting(ctx context.Context, key, name string, out any) (time.Time, error) {
	call, cancel := q.call(ctx)
	defer cancel()
	entry, err := q.jobs.Get(call, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, q.fail(ctx, err, "read %s of the queue", name)
	}
	return entry.Created(), decodeSetting(entry.Value(), out, name)
}

// allQuotas are the quotas as they were within quotaAge, and when they were changed before.
func (q *Queue) allQuotas(ctx context.Context) (map[string]queue.Quota, time.Time, error) {
	q.mu.Lock()
	all, set, fresh := q.quota.quotas, q.quota.set, time.Since(q.quota.read) < quotaAge
	q.mu.Unlock()
	if fresh {
		return all, set, nil
	}
	read := time.Now()
	all = map[string]queue.Quota{}
	set, err := q.setting(ctx, quotasKey, "quotas", &all)
	if err != nil {
		return nil, set, err
	}
	q.mu.Lock()
	q.quota.quotas, q.quota.set, q.quota.read = all, set, read
	q.mu.Unlock()
	return all, set, nil
}

// quotaOf is the quota that bounds a tenant, and when quotas were changed last.
func (q *Queue) quotaOf(ctx context.Context, tenant string) (queue.Quota, time.Time, error) {
	all, set, err := q.allQuotas(ctx)
	if own, has := all[tenant]; has {
		return own, set, err
	}
	return all[queue.EveryTenant], set, err
}

// charge counts a job that is new against its tenant's quota, or refuses it. refund takes its tokens back; its place among
// the open jobs lapses by itself. Of one that was counted the tokens are not counted again.
func (q *Queue) charge(ctx context.Context, job queue.Job, counted bool) (refund func(context.Context) error, err error) {
	refund = func(context.Context) error { return nil }
	tenant := job.Owner()
	quota, set, err := q.quotaOf(ctx, tenant)
	if counted {
		quota.DailyTokens = 0
	}
	if err != nil || quota.Open == 0 && quota.DailyTokens == 0 {
		return refund, err
	}
	err = q.editCount(ctx, tenant, func(c *tenantCount) error {
		has := queue.TenantUse{Tokens: c.Tokens}
		if quota.Open == 0 {
			c.Open = nil // others are not counted either
		} else if has.Open, err = q.enterOpen(ctx, c, entry{job, counted, quota.Open, set}); err != nil {
			return err
		}
		if quota.DailyTokens > 0 {
			c.Tokens += job.Tokens()
		}
		return quota.Admit(job, has)
	})
	if err != nil {
		return refund, fmt.Errorf("submit job %s: %w", job.ID, err)
	}
	return func(ctx context.Context) error {
		if quota.DailyTokens == 0 {
			return nil
		}
		return q.editCount(ctx, tenant, func(c *tenantCount) error {
			c.Tokens = max(c.Tokens-job.Tokens(), 0)
			return nil
		})
	}, nil
}

// editCount changes what a tenant has submitted today.
func (q *Queue) editCount(ctx context.Context, tenant string, change func(*tenantCount) error) error {
	today, err := q.today(ctx)
	if err != nil {
		return err
	}
	return q.edit(ctx, tokensKey+tenant, "count the submits of tenant "+tenant, func(b []byte) (any, error) {
		var c tenantCount
		if err := decodeSetting(b, &c, "submits of tenant "+tenant); err != nil {
			return nil, err
		}
		if c.Day < today { // who asked just before midnight counts for the new day, too
			c = tenantCount{Day: today, Open: c.Open}
		}
		err := change(&c)
		return c, err
	})
}

// today is the day of UTC by the server's clock: hosts need not agree on it.
func (q *Queue) today(ctx context.Context) (string, error) {
	call, cancel := q.call(ctx)
	defer cancel()
	now, err := q.serverTime(call)
	if err != nil {
		return "", q.fail(ctx, err, "read the clock of the server")
	}
	return now.UTC().Format(time.DateOnly), nil
}

// place is the lease of one of the jobs that a tenant may have at once.
func place(tenant string, i int) string { return fmt.Sprintf("running.%s.%d", tenant, i) }

// Enter takes the first of the tenant's places that is free.
func (q *Queue) Enter(ctx context.Context, tenant string, ttl time.Duration) (queue.Lease, error) {
	quota, _, err := q.quotaOf(ctx, tenant)
	if err != nil || quota.Running == 0 {
		return nil, err
	}
	q.mu.Lock()
	busy := time.Now().Before(q.quota.busy[tenant])
	q.mu.Unlock()
	if busy {
		return nil, quota.Busy(tenant)
	}
	for i := range quota.Running {
		l, err := q.Acquire(ctx, place(tenant, i), ttl)
		if err == nil {
			return entered{l, q, tenant}, nil
		}
		if !errors.Is(err, queue.ErrHeld) {
			return nil, err
		}
	}
	q.mu.Lock()
	q.quota.busy[tenant] = time.Now().Add(busyAge)
	q.mu.Unlock()
	return nil, quota.Busy(tenant)
}

// entered is a place; its release lets the next of this queue look again.
type entered struct {
	queue.Lease
	q      *Queue
	tenant string
}

func (e entered) Release(ctx context.Context) error {
	err := e.Lease.Release(ctx)
	e.q.mu.Lock()
	delete(e.q.quota.busy, e.tenant)
	e.q.mu.Unlock()
	return err
}

// Use counts the jobs of every tenant.
func (q *Queue) Use(ctx context.Context) ([]queue.TenantUse, error) {
	all, _, err := q.allQuotas(ctx)
	if err != nil {
		return nil, err
	}
	uses := map[string]*queue.TenantUse{}
	of := func(tenant string) *queue.TenantUse {
		if uses[tenant] == nil {
			quota, own := all[tenant]
			if !own {
				quota = all[queue.EveryTenant]
			}
			uses[tenant] = &queue.TenantUse{Tenant: tenant, Own: own, Quota: quota}
		}
		return uses[tenant]
	}
	for tenant := range all {
		of(tenant)
	}
	err = q.List(ctx, func(s queue.Status) bool {
		if !s.State.Final() {
			u := of(s.Job.Owner())
			if u.Open++; s.State == queue.Running {
				u.Running++
			}
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	today, err := q.today(ctx)
	for tenant, u := range uses {
		var c tenantCount
		if err == nil && tenant != queue.EveryTenant {
			_, err = q.setting(ctx, tokensKey+tenant, "submits of tenant "+tenant, &c)
		}
		if c.Day == today {
			u.Tokens = c.Tokens
		}
	}
	out := []queue.TenantUse{}
	for _, u := range slices.SortedFunc(maps.Values(uses), func(a, b *queue.TenantUse) int { return cmp.Compare(a.Tenant, b.Tenant) }) {
		out = append(out, *u)
	}
	return out, err
}
