package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lector/cache"
	"lector/cache/dir"
	"lector/cache/s3"
)

// openStore opens what --store names: a folder, or a bucket as s3://bucket/prefix?endpoint=...&region=...
// The closer lets go of the store.
func openStore(ctx context.Context, a *app) (cache.Store, io.Closer, error) {
	if err := a.checkSync(); err != nil {
		return nil, nil, err
	}
	if scheme, _, ok := strings.Cut(a.store, "://"); ok {
		if scheme != "s3" {
			return nil, nil, badInput(fmt.Errorf("store %q: lector keeps snapshots in a folder or in s3://, not in %s://", a.store, scheme))
		}
		opt, err := parseBucket(a.store)
		if err != nil {
			return nil, nil, badInput(err)
		}
		store, err := s3.Open(ctx, opt)
		if err != nil {
			return nil, nil, badInput(err) // nothing was sent: the address or the user's AWS files are at fault
		}
		return store, store, nil
	}
	folder, err := a.storeFolder()
	if err != nil {
		return nil, nil, err
	}
	store, err := dir.OpenWith(folder, dir.Options{Unsynced: a.sync == syncNone})
	if err != nil {
		return nil, nil, fmt.Errorf("open store: %w", err)
	}
	if a.sync == syncNone {
		a.note("store %s does not wait for the disk (--store-sync %s): a power cut may take what is stored last", folder, syncNone)
	}
	return store, store, nil
}

// What a store in a folder waits for.
const (
	syncDisk = "disk"
	syncNone = "none"
)

func (a *app) checkSync() error {
	switch {
	case a.sync != "" && a.sync != syncDisk && a.sync != syncNone:
		return badInput(fmt.Errorf("--store-sync %s: it is %s or %s", a.sync, syncDisk, syncNone))
	case a.sync == syncNone && strings.HasPrefix(a.store, "s3://"):
		return badInput(fmt.Errorf("--store-sync %s: a bucket's server says when it has stored; leave it out, or name a folder with --store", syncNone))
	}
	return nil
}

// noteSync says of a handle that another process made whether the store waited for it; that this one does not was said.
func (a *app) noteSync(sync, host string) {
	if sync == syncNone && a.sync != syncNone {
		a.note("the worker on %s did not wait for the disk (--store-sync %s): a power cut may take what it stored last", host, sync)
	}
}

// storeSetting is where states go and what is waited for, as doctor tells it. It opens nothing.
type storeSetting struct {
	Place string `json:"place"` // a folder, or a bucket and what is set of it
	Sync  string `json:"sync"`  // what a write waits for: disk, none or, of a bucket, server
}

func (a *app) storeSetting() (s storeSetting, err error) {
	if err := a.checkSync(); err != nil {
		return s, err
	}
	if strings.Contains(a.store, "://") {
		return storeSetting{Place: a.store, Sync: "server"}, nil
	}
	s.Sync = a.sync
	if s.Sync == "" {
		s.Sync = syncDisk
	}
	s.Place, err = a.storeFolder()
	return s, err
}

func (s storeSetting) String() string {
	switch s.Sync {
	case syncNone:
		return s.Place + ": does not wait for the disk (--store-sync none): a power cut may take what is stored last"
	case syncDisk:
		return s.Place + ": waits for the disk"
	}
	return s.Place + ": its server says when it has stored"
}

// storeFolder is --store, or a folder of the data folder.
func (a *app) storeFolder() (string, error) {
	if store := strings.TrimPrefix(a.store, "dir:"); store != "" {
		return filepath.Abs(store)
	}
	data, err := a.dataFolder()
	return filepath.Join(data, "store"), err
}

// probeStore asks a store that is not of this machine whether it does what a writer needs.
func probeStore(ctx context.Context, store cache.Store) error {
	if p, ok := store.(interface{ Probe(context.Context) error }); ok {
		return p.Probe(ctx)
	}
	return nil
}

// parseBucket reads s3://bucket/prefix with its settings. A store with an endpoint of its own is spoken to in the way
// that most of them take, unless the address says otherwise.
func parseBucket(address string) (s3.Options, error) {
	u, err := url.Parse(address)
	if err != nil {
		return s3.Options{}, fmt.Errorf("store %q: %w", address, err)
	}
	if u.User != nil || u.Fragment != "" || u.Port() != "" {
		return s3.Options{}, fmt.Errorf("store %q: an address is s3://bucket/prefix?region=..., and credentials come from the environment or the AWS files", u.Redacted())
	}
	set, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return s3.Options{}, fmt.Errorf("store %q: %w", address, err)
	}
	known := []string{"endpoint", "region", "path_style", "compatible"}
	for name, values := range set {
		if !slices.Contains(known, name) || len(values) != 1 || values[0] == "" {
			return s3.Options{}, fmt.Errorf("store %q: setting %s=%s is not one of %s, each given once", address, name, strings.Join(values, ","), strings.Join(known, ", "))
		}
	}
	opt := s3.Options{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Endpoint: set.Get("endpoint"), Region: set.Get("region")}
	if opt.Bucket == "" {
		return opt, fmt.Errorf("store %q: it names no bucket", address)
	}
	if e, err := url.Parse(opt.Endpoint); opt.Endpoint != "" && (err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https") {
		return opt, fmt.Errorf("store %q: endpoint %q is not a URL such as https://storage.example", address, opt.Endpoint)
	}
	return opt, errors.Join(
		boolSetting(set, "path_style", opt.Endpoint != "", &opt.PathStyle),
		boolSetting(set, "compatible", opt.Endpoint != "", &opt.Compatible),
	)
}

func boolSetting(set url.Values, name string, otherwise bool, to *bool) error {
	*to = otherwise
	text := set.Get(name)
	if text == "" {
		return nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("store setting %s=%s is not true or false", name, text)
	}
	*to = v
	return nil
}
