package queuetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"lector/queue"
)

// quotas is what a Memory knows of its tenants.
type quotas struct {
	set    map[string]queue.Quota
	tokens map[string]int64 // by tenant and day
}

// SetQuota bounds a tenant from now on.
func (m *Memory) SetQuota(ctx context.Context, tenant string, q queue.Quota) error {
	return m.do(ctx, "SetQuota", tenant, func() error {
		if err := queue.CheckTenant(tenant); err != nil {
			return err
		}
		if err := q.Validate(); err != nil {
			return err
		}
		if m.state.quotas.set[tenant] = q; q == (queue.Quota{}) {
			delete(m.state.quotas.set, tenant)
		}
		return nil
	})
}

func (s *state) quotaOf(tenant string) (q queue.Quota, own bool) {
	if q, own = s.quotas.set[tenant]; own {
		return q, true
	}
	return s.quotas.set[queue.EveryTenant], false
}

// use is what a tenant has now.
func (m *Memory) use(tenant string) queue.TenantUse {
	u := queue.TenantUse{Tenant: tenant, Tokens: m.state.quotas.tokens[m.today(tenant)]}
	u.Quota, u.Own = m.state.quotaOf(tenant)
	for _, j := range m.state.jobs {
		if j.status.Job.Owner() != tenant || j.status.State.Final() {
			continue
		}
		if u.Open++; j.status.State == queue.Running {
			u.Running++
		}
	}
	return u
}

func (m *Memory) today(tenant string) string {
	return tenant + " " + m.clock.Now().UTC().Format(time.DateOnly)
}

// admit counts a new job, or refuses it. The tokens of one that was counted are not counted again.
func (m *Memory) admit(order queue.Job, counted bool) error {
	u := m.use(order.Owner())
	if counted {
		u.Quota.DailyTokens = 0
	}
	if err := u.Quota.Admit(order, u); err != nil {
		return fmt.Errorf("submit job %s: %w", order.ID, err)
	}
	if u.Quota.DailyTokens > 0 {
		m.state.quotas.tokens[m.today(order.Owner())] += order.Tokens()
	}
	return nil
}

// Use tells of every tenant.
func (m *Memory) Use(ctx context.Context) ([]queue.TenantUse, error) {
	var out []queue.TenantUse
	err := m.do(ctx, "Use", "", func() error {
		tenants := maps.Clone(m.state.quotas.set)
		for _, j := range m.state.jobs {
			if !j.status.State.Final() {
				tenants[j.status.Job.Owner()] = queue.Quota{}
			}
		}
		for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
			out = append(out, m.use(tenant))
		}
		return nil
	})
	return out, err
}

// Enter claims one of the tenant's places.
func (m *Memory) Enter(ctx context.Context, tenant string, ttl time.Duration) (queue.Lease, error) {
	l := &lease{m: m, ttl: ttl}
	err := m.do(ctx, "Enter", tenant, func() error {
		q, _ := m.state.quotaOf(tenant)
		if q.Running == 0 {
			l = nil
			return nil
		}
		now := m.clock.Now()
		for i := range q.Running {
			l.name = fmt.Sprintf("running.%s.%d", tenant, i)
			if c := m.state.leases[l.name]; c != nil && now.Before(c.expires) {
				continue
			}
			l.revision = m.state.next()
			m.state.leases[l.name] = &claim{l.revision, now.Add(ttl)}
			return nil
		}
		return q.Busy(tenant)
	})
	if err != nil || l == nil {
		return nil, err
	}
	return l, nil
}
