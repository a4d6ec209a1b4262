package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lector/queue"
	"lector/queue/jetstream"
)

// quotaFlags are the bounds that a command sets; those that are not given stay.
type quotaFlags struct {
	running, open  int
	daily          string
	remove, asJSON bool
}

func newQueueQuota(a *app) *cobra.Command {
	var f quotaFlags
	c := &cobra.Command{
		Use:   "quota [TENANT]",
		Short: "Show what tenants have of the queue, or bound what one may have",
		Long: "quota lists the tenants with their bounds and what they have of them. With a TENANT and a bound it sets that one; 0 takes it\n" +
			"back. A tenant is who submits with --tenant, default where nobody says, or " + queue.EveryTenant + " for all that have no bounds of\n" +
			"their own. More than --open or --daily-tokens is refused at submit; jobs beyond --running wait. Workers heed a change within\n" +
			"some seconds.",
		Example: "  lector queue quota acme --running 2 --daily-tokens 20M",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.queueQuota(c.Context(), f, args, c.Flags().Changed)
		},
	}
	fs := c.Flags()
	fs.IntVar(&f.running, "running", 0, "`jobs` of the tenant that all workers together work on at once")
	fs.IntVar(&f.open, "open", 0, "`jobs` of the tenant that may wait or be worked on")
	fs.StringVar(&f.daily, "daily-tokens", "0", "`tokens` that the tenant may submit in a day of UTC, such as 500000 or 20M: of documents, and the most that texts may get")
	fs.BoolVar(&f.remove, "remove", false, "take all bounds of the tenant back")
	fs.BoolVar(&f.asJSON, "json", false, "print the list as JSON")
	return c
}

func (a *app) queueQuota(ctx context.Context, f quotaFlags, args []string, given func(string) bool) error {
	sets := given("running") || given("open") || given("daily-tokens")
	switch {
	case len(args) == 0 && (sets || f.remove):
		return badInput(fmt.Errorf("whose quota? Give a tenant, or %s", queue.EveryTenant))
	case sets && f.remove:
		return badInput(errors.New("give bounds or --remove, not both"))
	}
	daily, err := tokenCount(f.daily)
	if err != nil {
		return badInput(err)
	}
	return a.withQueue(ctx, func(q *jetstream.Queue) error {
		use, err := q.Use(ctx)
		if err != nil {
			return err
		}
		if sets || f.remove {
			quota := ownQuota(use, args[0])
			if given("running") || f.remove {
				quota.Running = f.running
			}
			if given("open") || f.remove {
				quota.Open = f.open
			}
			if given("daily-tokens") || f.remove {
				quota.DailyTokens = daily
			}
			if err := errors.Join(queue.CheckTenant(args[0]), quota.Validate()); err != nil {
				return badInput(err)
			}
			if err := q.SetQuota(ctx, args[0], quota); err != nil {
				return err
			}
			if use, err = q.Use(ctx); err != nil {
				return err
			}
		}
		return a.printUse(use, args, f.asJSON)
	})
}

// ownQuota is what is set for a tenant itself.
func ownQuota(use []queue.TenantUse, tenant string) queue.Quota {
	for _, u := range use {
		if u.Tenant == tenant && u.Own {
			return u.Quota
		}
	}
	return queue.Quota{}
}

// printUse lists tenants, or the one that is named.
func (a *app) printUse(use []queue.TenantUse, only []string, asJSON bool) error {
	shown := []queue.TenantUse{}
	for _, u := range use {
		if len(only) == 0 || u.Tenant == only[0] {
			shown = append(shown, u)
		}
	}
	if asJSON {
		return json.NewEncoder(a.out).Encode(shown)
	}
	if len(shown) == 0 && len(only) > 0 {
		fmt.Fprintf(a.out, "%s has no bounds and no open jobs\n", only[0])
		return nil
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	tenantRows(t, shown)
	return t.Flush()
}

// tenantRows writes a table of tenants: what each has, of what it may have.
func tenantRows(w io.Writer, use []queue.TenantUse) {
	fmt.Fprintln(w, "TENANT\tRUNNING\tOPEN\tTOKENS TODAY\t")
	of := func(has, most int64) string {
		if most == 0 {
			return fmt.Sprint(has)
		}
		return fmt.Sprintf("%d of %d", has, most)
	}
	for _, u := range use {
		tokens := of(u.Tokens, u.Quota.DailyTokens)
		if u.Quota.DailyTokens == 0 {
			tokens = "-"
		}
		note := ""
		if !u.Own && u.Quota != (queue.Quota{}) {
			note = "as " + queue.EveryTenant
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", u.Tenant, of(int64(u.Running), int64(u.Quota.Running)), of(int64(u.Open), int64(u.Quota.Open)), tokens, note)
	}
	if len(use) == 0 {
		fmt.Fprintln(w, "none")
	}
}

// tokenCount reads a number of tokens, of thousands (k) or of millions (M).
func tokenCount(text string) (int64, error) {
	digits, factor := text, int64(1)
	if s, is := strings.CutSuffix(text, "M"); is {
		digits, factor = s, 1_000_000
	} else if s, is := strings.CutSuffix(text, "k"); is {
		digits, factor = s, 1000
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > 1<<53/factor {
		return 0, fmt.Errorf("--daily-tokens %q is not a number of tokens such as 500000, 500k or 20M", text)
	}
	return n * factor, nil
}
