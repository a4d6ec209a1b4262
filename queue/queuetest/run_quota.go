package queuetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"lector/queue"
)

// of is an ingest job of a tenant.
func of(tenant, id string) queue.Job {
	j := ingestJob(id)
	j.Tenant = tenant
	return j
}

// refused is a submit that the tenant's quota has no room for: the error says whose, how much, and what to do.
func (f *fixture) refused(j queue.Job, words ...string) {
	f.Helper()
	_, err := f.Queue.Submit(f.ctx, j)
	f.is(err, queue.ErrQuota)
	for _, w := range append(words, j.Owner(), "lector queue quota") {
		if !strings.Contains(err.Error(), w) {
			f.Errorf("the refusal %q does not say %q", err, w)
		}
	}
	_, err = f.Queue.Status(f.ctx, j.ID)
	f.is(err, queue.ErrUnknown) // nothing is left of it
}

// postpone gives a job back for a reason that is not its own.
func postpone(f *fixture) {
	f.submit(ingestJob("a"))
	f.ok(f.next("a", 1).Postpone(f.ctx, f.AckWait, "the room is taken"))
	if s := f.state("a", queue.Queued, 0); s.Waits != "the room is taken" {
		f.Errorf("the job that was given back waits for %q", s.Waits)
	}
	f.none()
	f.Pass(f.AckWait)
	d := f.next("a", 1)
	if s := f.state("a", queue.Running, 1); s.Waits != "" || d.Standing().Waits != "" || d.Standing().State != queue.Running {
		f.Errorf("a job that is worked on waits for %q; its delivery found %+v", s.Waits, d.Standing())
	}
	f.finish(d)
	f.submit(ingestJob("b"))
	d = f.next("b", 1)
	_, err := f.Queue.Cancel(f.ctx, "b", queue.Cancellation{})
	f.ok(err)
	f.ok(d.Postpone(f.ctx, time.Hour, "the room is taken"))
	f.state("b", queue.Cancelled, 0)
}

// quotaOpen bounds one tenant's jobs in the queue, and nobody else's.
func quotaOpen(f *fixture) {
	if f.Queue.SetQuota(f.ctx, "no name", queue.Quota{Open: 1}) == nil || f.Queue.SetQuota(f.ctx, "acme", queue.Quota{Open: -1}) == nil {
		f.Error("a quota that cannot be is taken")
	}
	f.ok(f.Queue.SetQuota(f.ctx, "acme", queue.Quota{Open: 2}))
	f.submit(of("acme", "a"))
	f.submit(of("acme", "b"))
	f.submit(of("acme", "a")) // the job that stands
	f.submit(of("other", "c"))
	f.submit(ingestJob("d"))
	f.refused(of("acme", "e"), "2 jobs", "may have 2")
	use, err := f.Queue.Use(f.ctx)
	f.ok(err)
	want := []queue.TenantUse{
		{Tenant: "acme", Own: true, Quota: queue.Quota{Open: 2}, Open: 2}, {Tenant: queue.DefaultTenant, Open: 1}, {Tenant: "other", Open: 1},
	}
	for i := range want {
		if len(use) != len(want) || use[i] != want[i] {
			f.Fatalf("in use is %+v, not %+v", use, want)
		}
	}
	f.ok(f.Queue.SetQuota(f.ctx, "acme", queue.Quota{}))
	f.submit(of("acme", "e"))
}

// quotaOpenAtOnce submits many jobs at the same moment: as many get in as there is room for, and where there was none one
// that ended makes room for one.
func quotaOpenAtOnce(f *fixture) {
	f.ok(f.Queue.SetQuota(f.ctx, "acme", queue.Quota{Open: 5}))
	in := f.atOnce(24, "a")
	if len(in) != 5 {
		f.Fatalf("%d get in where 5 may be open: %v", len(in), in)
	}
	if again := f.atOnce(24, "b"); len(again) != 0 {
		f.Fatalf("%v get in where there is no room", again)
	}
	d, err := f.Queue.Next(f.ctx, queue.Ingest)
	f.ok(err)
	f.finish(d)
	f.ok(f.Queue.SetQuota(f.ctx, "acme", queue.Quota{Open: 7})) // it is counted anew
	if more := f.atOnce(24, "c"); len(more) != 3 {
		f.Fatalf("after one of 5 ended, %d get in where 7 may be open: %v", len(more), more)
	}
	use, err := f.Queue.Use(f.ctx)
	f.ok(err)
	if len(use) != 1 || use[0].Open != 7 {
		f.Errorf("in use is %+v", use)
	}
}

// atOnce submits n jobs of acme, and returns those that get in. The others are over the quota.
func (f *fixture) atOnce(n int, prefix string) (in []string) {
	f.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, errs[i] = f.Queue.Submit(f.ctx, of("acme", fmt.Sprint(prefix, i))) })
	}
	all.Wait()
	for i, err := range errs {
		if err == nil {
			in = append(in, fmt.Sprint(prefix, i))
			continue
		}
		f.is(err, queue.ErrQuota)
	}
	return in
}

// sameDay lets the day of UTC end where it is about to: what a test then submits counts for one day.
func sameDay() {
	now := time.Now().UTC()
	if left := now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now); left < 30*time.Second {
		time.Sleep(left)
	}
}

// quotaTokens bounds what every tenant submits in a day; a job that is refused costs nothing.
func quotaTokens(f *fixture) {
	sameDay()
	f.ok(f.Queue.SetQuota(f.ctx, queue.EveryTenant, queue.Quota{DailyTokens: 20}))
	f.submit(of("acme", "a")) // of seven tokens
	f.submit(of("acme", "b"))
	f.refused(of("acme", "c"), "14 tokens", "may submit 20", "up to 7")
	f.submit(of("acme", "b"))
	small := of("acme", "d")
	small.Ingest.Tokens = 6
	f.submit(small)
	text := resumeJob("e")
	text.Resume.MaxTokens, text.Resume.Branches = 11, 2
	f.refused(text, "up to 22")
	f.submit(resumeJob("f"))
	use, err := f.Queue.Use(f.ctx)
	f.ok(err)
	if len(use) < 2 || use[0].Tenant != "acme" || use[0].Own || use[0].Tokens != 20 || use[1].Tokens != 5 {
		f.Errorf("in use is %+v", use)
	}
	f.ok(f.next("a", 1).Reject(f.ctx, queue.Dead{Class: "numeric"}))
	f.submit(of("acme", "a")) // replayed: counted before, and there is no room to count it twice
	use, err = f.Queue.Use(f.ctx)
	f.ok(err)
	if use[0].Tokens != 20 || use[0].Open != 3 {
		f.Errorf("after a replay in use is %+v", use)
	}
}

// quotaRunning has places that are claimed like leases.
func quotaRunning(f *fixture) {
	enter := func(tenant string) (queue.Lease, error) { return f.Queue.Enter(f.ctx, tenant, f.AckWait) }
	l, err := enter("acme")
	f.ok(err)
	if l != nil {
		f.Fatal("there is a place where there is no bound")
	}
	f.ok(f.Queue.SetQuota(f.ctx, "acme", queue.Quota{Running: 2}))
	one, err := enter("acme")
	f.ok(err)
	two, err := enter("acme")
	f.ok(err)
	_, err = enter("acme")
	f.is(err, queue.ErrQuota)
	if l, err := enter("other"); l != nil || err != nil {
		f.Fatalf("another tenant gets %v, %v", l, err)
	}
	f.ok(one.Release(f.ctx))
	three, err := enter("acme")
	f.ok(err)
	f.ok(two.Renew(f.ctx))
	f.ok(two.Release(f.ctx))
	f.ok(three.Release(f.ctx))
}
