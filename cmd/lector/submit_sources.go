package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"time"

	"lector/cache/s3"
	"lector/queue/jetstream"
)

// fetchLimits bound what one document may take to fetch.
type fetchLimits struct {
	bytes     int64
	timeout   time.Duration
	redirects int
}

// fetcher reads documents from wherever they are.
type fetcher struct {
	app    *app
	queue  *jetstream.Queue // with its object store
	limits fetchLimits
}

// expand turns a pattern or a prefix into the names of documents.
func (f fetcher) expand(ctx context.Context, name string) ([]string, error) {
	switch {
	case strings.HasPrefix(name, "s3://"):
		bucket, set, _ := strings.Cut(name, "?")
		if !strings.HasSuffix(bucket, "/") {
			return []string{name}, nil
		}
		return f.listBucket(ctx, name, set)
	case strings.Contains(name, "://") || name == "-" || isFile(name) || !strings.ContainsAny(name, "*?["):
		return []string{name}, nil
	}
	found, err := filepath.Glob(name)
	if err != nil {
		return nil, badInput(fmt.Errorf("pattern %q: %w", name, err))
	}
	if len(found) == 0 {
		return nil, badInput(fmt.Errorf("no file matches %q", name))
	}
	return found, nil
}

// fetch reads one document, and names it for people.
func (f fetcher) fetch(ctx context.Context, name string) (text []byte, base string, err error) {
	scheme, rest, remote := strings.Cut(name, "://")
	if !remote || isFile(name) {
		text, base, err = f.app.readInput(name)
		if err == nil && int64(len(text)) > f.limits.bytes {
			err = tooLarge(name, f.limits.bytes)
		}
		return text, base, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.limits.timeout)
	defer cancel()
	var body io.ReadCloser
	switch scheme {
	case "http", "https":
		body, err = f.get(ctx, name)
	case "s3":
		body, err = f.object(ctx, name)
	case "object":
		bucket, key, ok := strings.Cut(rest, "/")
		if !ok || bucket == "" || key == "" {
			return nil, "", badInput(fmt.Errorf("document %q: an object is object://bucket/name", name))
		}
		body, err = f.queue.Object(ctx, bucket, key)
	default:
		return nil, "", badInput(fmt.Errorf("document %q: lector fetches from s3://, http://, https:// and object://, not from %s://", name, scheme))
	}
	if err != nil {
		return nil, "", badInput(fmt.Errorf("fetch %s: %w", plainURL(name), err))
	}
	defer body.Close()
	text, err = io.ReadAll(io.LimitReader(body, f.limits.bytes+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, "", badInput(fmt.Errorf("fetch %s: not done within %v (--fetch-timeout)", plainURL(name), f.limits.timeout))
	case err != nil:
		return nil, "", badInput(fmt.Errorf("fetch %s: %w", plainURL(name), err))
	case int64(len(text)) > f.limits.bytes:
		return nil, "", badInput(tooLarge(plainURL(name), f.limits.bytes))
	}
	return text, path.Base(strings.SplitN(rest, "?", 2)[0]), nil
}

func tooLarge(name string, limit int64) error {
	return badInput(fmt.Errorf("document %s has more than %s (--max-bytes)", name, size(limit)))
}

// plainURL is an address without what might be secret in it.
func plainURL(name string) string {
	u, err := url.Parse(name)
	if err != nil {
		return "an address that is not a URL"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// get asks a web server. A redirect from https to http would show the document to everybody, and is not followed.
func (f fetcher) get(ctx context.Context, name string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, name, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "lector")
	client := http.Client{CheckRedirect: f.redirect}
	answer, err := client.Do(request)
	var why *url.Error
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %v (--fetch-timeout)", f.limits.timeout)
	case errors.As(err, &why):
		return nil, why.Err // without the address, which may hold a secret
	case err != nil:
		return nil, err
	case answer.StatusCode != http.StatusOK:
		return nil, errors.Join(fmt.Errorf("the server answers %s", answer.Status), answer.Body.Close())
	case answer.ContentLength > f.limits.bytes:
		return nil, errors.Join(fmt.Errorf("it has %s, more than %s (--max-bytes)", size(answer.ContentLength), size(f.limits.bytes)), answer.Body.Close())
	}
	return answer.Body, nil
}

// redirect refuses to follow what it should not.
func (f fetcher) redirect(next *http.Request, before []*http.Request) error {
	switch last := before[len(before)-1]; {
	case len(before) > f.limits.redirects:
		return fmt.Errorf("more than %d redirects (--redirects)", f.limits.redirects)
	case last.URL.Scheme == "https" && next.URL.Scheme != "https":
		return errors.New("the server redirects from https to " + next.URL.Scheme)
	}
	return nil
}

// bucket opens the bucket of an address with the settings that it gives, or else those of --store.
func (f fetcher) bucket(ctx context.Context, address string) (*s3.Store, string, error) {
	plain, set, given := strings.Cut(address, "?")
	if !given {
		if _, mine, ok := strings.Cut(f.app.store, "?"); ok && strings.HasPrefix(f.app.store, "s3://") {
			set = mine
		}
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(plain, "s3://"), "/")
	opt, err := parseBucket("s3://" + bucket + "?" + set)
	if err != nil {
		return nil, "", badInput(err)
	}
	store, err := s3.Open(ctx, opt)
	if err != nil {
		return nil, "", badInput(err)
	}
	return store, key, nil
}

// object asks an object storage service.
func (f fetcher) object(ctx context.Context, address string) (io.ReadCloser, error) {
	store, key, err := f.bucket(ctx, address)
	if err != nil {
		return nil, err
	}
	body, err := store.Get(ctx, key, 0, -1)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return closing{body, store}, nil
}

// closing closes what a reader reads from, too.
type closing struct {
	io.ReadCloser
	under io.Closer
}

func (c closing) Close() error { return errors.Join(c.ReadCloser.Close(), c.under.Close()) }

// listBucket names every object that begins with a prefix.
func (f fetcher) listBucket(ctx context.Context, address, set string) (names []string, err error) {
	store, prefix, err := f.bucket(ctx, address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	plain, _, _ := strings.Cut(address, "?")
	root := strings.TrimSuffix(plain, prefix)
	for o, err := range store.List(ctx, prefix) {
		if err != nil {
			return nil, badInput(fmt.Errorf("list %s: %w", plain, err))
		}
		if strings.HasSuffix(o.Name, "/") {
			continue // a folder that somebody made
		}
		name := root + o.Name
		if set != "" {
			name += "?" + set
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, badInput(fmt.Errorf("there is nothing under %s", plain))
	}
	return names, nil
}
