package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"lector/cache"
)

func newSnapshotLs(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the handles in the store",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.snapshotLs(c.Context(), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a handle")
	return c
}

// listed is a handle as ls prints it.
type listed struct {
	Handle     string     `json:"handle"`
	Tokens     int        `json:"tokens"`
	TokensOnly bool       `json:"tokens_only"`     // it holds token ids and no state
	Bytes      int64      `json:"bytes"`           // what a resume restores: the state, or the ids where those are all
	Error      string     `json:"error,omitempty"` // why its description cannot be read: there is no state to be had then
	Model      string     `json:"model"`
	Stored     time.Time  `json:"stored"`
	Expires    *time.Time `json:"expires,omitempty"`
	Expired    bool       `json:"expired"`
}

func (a *app) snapshotLs(ctx context.Context, asJSON bool) error {
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	all, damaged, err := listHandles(ctx, space)
	if err == nil {
		err = a.printHandles(all, asJSON)
	}
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	if len(damaged) > 0 {
		return fmt.Errorf("list snapshots: %d cannot be read: %w", len(damaged), damaged[0])
	}
	if len(all) == 0 && !asJSON {
		a.note("no snapshots: lector ingest makes one")
	}
	return nil
}

// listHandles reads every handle, and what their manifests say of their states. Handles that are damaged, or whose
// manifest is, do not end the listing: damaged tells of them.
func listHandles(ctx context.Context, space *cache.Space) (all []listed, damaged []error, err error) {
	var manifests []cache.Digest
	for h, err := range space.Handles(ctx) {
		if unreadable(err) && h.Digest != (cache.Digest{}) {
			damaged = append(damaged, err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		l := listed{Handle: h.Name(), Tokens: h.Handle.Tokens, Model: h.Handle.Model.String(), Stored: h.Stored.UTC(), Expired: h.Handle.Valid(time.Now()) != nil}
		if !h.Handle.Expires.IsZero() {
			l.Expires = &h.Handle.Expires
		}
		all, manifests = append(all, l), append(manifests, h.Handle.Manifest)
	}
	failed := make([]error, len(all))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range all {
		g.Go(func() error {
			m, err := space.Manifest(gctx, manifests[i])
			if unreadable(err) {
				all[i].Error = err.Error()
				failed[i] = fmt.Errorf("%s: %w", all[i].Handle, err)
				return nil
			}
			all[i].TokensOnly, all[i].Bytes = m.TokensOnly(), m.Bytes
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	for _, err := range failed {
		if err != nil {
			damaged = append(damaged, err)
		}
	}
	return all, damaged, nil
}

// unreadable tells what is wrong with one object from what ends any reading.
func unreadable(err error) bool {
	return errors.Is(err, cache.ErrCorrupt) || errors.Is(err, cache.ErrIncompatible) || errors.Is(err, cache.ErrNotFound)
}

func (a *app) printHandles(all []listed, asJSON bool) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	enc := json.NewEncoder(a.out)
	for i, l := range all {
		if asJSON {
			if err := enc.Encode(l); err != nil {
				return err
			}
			continue
		}
		if i == 0 {
			fmt.Fprintln(t, "HANDLE\tTOKENS\tSTATE\tMODEL\tSTORED\tEXPIRES")
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.12s\t%s\t%s\n", l.Handle, l.Tokens, l.state(), l.Model, l.Stored.Format(time.DateTime), expiry(l))
	}
	return t.Flush()
}

// state says what a resume finds.
func (l listed) state() string {
	switch {
	case l.Error != "":
		return "unreadable"
	case l.TokensOnly:
		return "none, ids alone"
	}
	return size(l.Bytes)
}

func expiry(l listed) string {
	switch {
	case l.Expires == nil:
		return "never"
	case l.Expired:
		return l.Expires.UTC().Format(time.DateTime) + " (expired)"
	}
	return l.Expires.UTC().Format(time.DateTime)
}
