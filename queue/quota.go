package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrQuota says that a tenant has as much of the queue as it may have.
var ErrQuota = errors.New("over the tenant's quota")

// EveryTenant is the name under which the quota is set of each tenant that has none of its own.
const EveryTenant = "every-tenant"

// DefaultTenant is whose jobs those are that name nobody.
const DefaultTenant = "default"

// MaxRunning is the most jobs at once that a quota can allow.
const MaxRunning = 1000

// Quota bounds what one tenant may have. 0 is no bound.
type Quota struct {
	// Running is how many jobs all workers together work on at once; others wait.
	Running int `json:"running,omitempty"`
	// Open is how many jobs may wait or be worked on; a submit of more is refused, however many there are at the same
	// moment. A submit that fails midway may hold its place for a minute.
	Open int `json:"open,omitempty"`
	// DailyTokens is how many tokens may be submitted within a day of UTC: those of documents, and the most that texts
	// may get. A submit of more is refused. A failed job that is submitted again was counted before.
	DailyTokens int64 `json:"daily_tokens,omitempty"`
}

// Validate says which bound cannot be.
func (q Quota) Validate() error {
	switch {
	case q.Running < 0 || q.Open < 0 || q.DailyTokens < 0:
		return fmt.Errorf("a quota of %d jobs at once, %d open jobs and %d tokens a day: none may be negative, and 0 is no bound", q.Running, q.Open, q.DailyTokens)
	case q.Running > MaxRunning:
		return fmt.Errorf("a quota of %d jobs at once: at most %d, or 0 for no bound", q.Running, MaxRunning)
	}
	return nil
}

// TenantUse is what a tenant has of its quota.
type TenantUse struct {
	Tenant  string `json:"tenant"`
	Own     bool   `json:"own"` // the quota is set for this tenant, not for every one
	Quota   Quota  `json:"quota"`
	Running int    `json:"running"`
	Open    int    `json:"open"`
	Tokens  int64  `json:"tokens"` // submitted today; counted while a quota bounds them
}

// Quotas keeps tenants to their part of the queue. A change is heeded everywhere within some seconds.
type Quotas interface {
	// SetQuota bounds a tenant, or with EveryTenant those that have no bounds of their own. The zero Quota takes it back.
	SetQuota(ctx context.Context, tenant string, q Quota) error
	// Use tells of every tenant that has a quota or open jobs, in order of name.
	Use(ctx context.Context) ([]TenantUse, error)
	// Enter claims one of the places that Quota.Running gives the tenant; nil where it has no bound, ErrQuota while all
	// are taken.
	Enter(ctx context.Context, tenant string, ttl time.Duration) (Lease, error)
}

// Owner is the tenant whose job it is.
func (j Job) Owner() string {
	if j.Tenant == "" {
		return DefaultTenant
	}
	return j.Tenant
}

// Tokens is what the job counts against Quota.DailyTokens.
func (j Job) Tokens() int64 {
	switch {
	case j.Ingest != nil:
		return int64(j.Ingest.Tokens)
	case j.Resume != nil:
		return int64(len(j.Resume.Tokens)) + int64(max(j.Resume.Branches, 1))*int64(j.Resume.MaxTokens)
	}
	return 0
}

// Admit refuses a job that its tenant's quota has no room for: has is what the tenant has without it. The error says
// what the bound is, what there is, and what to do.
func (q Quota) Admit(job Job, has TenantUse) error {
	tenant := job.Owner()
	switch more := job.Tokens(); {
	case q.Open > 0 && has.Open >= q.Open:
		return fmt.Errorf("%w: tenant %s has %d jobs that wait or are worked on, and may have %d: wait for some to end, or raise it with 'lector queue quota %s --open'",
			ErrQuota, tenant, has.Open, q.Open, tenant)
	case q.DailyTokens > 0 && has.Tokens+more > q.DailyTokens:
		return fmt.Errorf("%w: tenant %s has submitted %d tokens today (UTC) and may submit %d, and this job has up to %d: wait for tomorrow, or raise it with 'lector queue quota %s --daily-tokens'",
			ErrQuota, tenant, has.Tokens, q.DailyTokens, more, tenant)
	}
	return nil
}

// Busy is the refusal of a place while all are taken.
func (q Quota) Busy(tenant string) error {
	return fmt.Errorf("%w: %d jobs of tenant %s are worked on, as many as may be at once ('lector queue quota %s --running' changes that)",
		ErrQuota, q.Running, tenant, tenant)
}

// CheckTenant refuses a name that no tenant can have.
func CheckTenant(tenant string) error {
	if !validName(tenant) {
		return fmt.Errorf("tenant %.64q: a name is 1 to 128 letters, digits, '-' and '_'", strings.ToValidUTF8(tenant, "?"))
	}
	return nil
}
