// Package s3 keeps objects in a bucket of Amazon S3 or of a store that speaks its protocol. It is the only package
// that knows the service's client library. It owns every key under its prefix of the bucket.
//
// What it promises:
//
//  1. An object is there whole or not at all: each is one put, whose SHA-256 the store checks before it answers.
//  2. Of several processes that put one name if absent, exactly one succeeds (If-None-Match: *). Probe refuses a
//     store that does not keep this.
//  3. A request that fails for a passing reason is repeated a bounded number of times, after a wait that doubles and
//     is drawn at random; each try has a time limit that grows with its bytes. The same bytes go out every time.
//  4. The end of the caller's context ends the call at once, and errors.Is sees that context's error.
//  5. A body that ends early, or a range that the store did not honour, is read again and never passed on.
//
// A repeated put-if-absent whose first answer was lost finds its own object and answers cache.ErrExists, which
// callers compare with what stands, as they do for anybody else's.
//
// Checksums: a put names its SHA-256 in a header and signs it, so that nothing is sent as a trailer. Compatible leaves
// the checksum header out for stores that refuse it, and the signed digest still covers the body. Times are whole
// seconds of the store's clock.
//
// A Store may be used from any goroutine. Start reading at Put and Get; request.go has the tries.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"lector/cache"
)

// Options says which bucket, and how to speak to it. A zero field takes its default.
type Options struct {
	Bucket string // required
	Prefix string // of every key, without slashes at its ends; "" is the whole bucket

	Endpoint   string // URL of a store that is not Amazon's
	Region     string // default: the library's usual sources; us-east-1 with an Endpoint
	PathStyle  bool   // bucket in the path instead of the host name
	Compatible bool   // no checksum headers

	// AccessKey and SecretKey are used when both are set; otherwise the library's usual chain finds some.
	AccessKey, SecretKey string

	Attempts int           // tries of one request; default 5
	Backoff  time.Duration // longest wait before the second try; it doubles up to 50 times that. Default 100 ms
	Timeout  time.Duration // of one try, beside a second for each MiB that it moves; default 30 s
	Part     int64         // bytes read by one request; default 8 MiB
	Parallel int           // requests of one Get at a time; default 4
}

// Store is a cache.Store in a bucket.
type Store struct {
	client *s3.Client
	idle   func() // closes connections that nobody uses
	opt    Options
	prefix string // "" or ending in a slash
}

var _ cache.Store = (*Store)(nil)

// Open prepares a store; it sends nothing. Probe says whether the bucket is fit.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.Prefix = strings.Trim(opt.Prefix, "/")
	if opt.Bucket == "" || strings.ContainsAny(opt.Bucket, "/?#") {
		return nil, fmt.Errorf("open S3 store: bucket %q is not a name", opt.Bucket)
	}
	if opt.Prefix != "" {
		if err := cache.CheckName(opt.Prefix); err != nil {
			return nil, fmt.Errorf("open S3 store: prefix: %w", err)
		}
	}
	opt = opt.withDefaults()
	s := &Store{opt: opt}
	if opt.Prefix != "" {
		s.prefix = opt.Prefix + "/"
	}
	cfg, err := config.LoadDefaultConfig(ctx, s.settings()...)
	if err != nil {
		return nil, fmt.Errorf("open S3 store %s: %w", s, err)
	}
	if cfg.Region == "" {
		return nil, fmt.Errorf("open S3 store %s: no region: name the bucket's with region=", s)
	}
	if built, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		t := built.GetTransport() // a copy, to hold what the library has hidden
		cfg.HTTPClient, s.idle = &http.Client{Transport: t, CheckRedirect: noRedirect}, t.CloseIdleConnections
	}
	s.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = opt.PathStyle
		o.DisableLogOutputChecksumValidationSkipped = true
		if opt.Endpoint != "" {
			o.BaseEndpoint = aws.String(opt.Endpoint)
		}
	})
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.Region == "" && o.Endpoint != "" {
		o.Region = "us-east-1" // such stores ignore it, and signing needs one
	}
	if o.Attempts <= 0 {
		o.Attempts = 5
	}
	if o.Backoff <= 0 {
		o.Backoff = 100 * time.Millisecond
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Part <= 0 {
		o.Part = 8 << 20
	}
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	return o
}

// settings makes the library leave tries, checksums and logging to this package.
func (s *Store) settings() []func(*config.LoadOptions) error {
	out := []func(*config.LoadOptions) error{
		config.WithHTTPClient(transport()),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
		config.WithLogger(logging.Nop{}),
	}
	if s.opt.Region != "" {
		out = append(out, config.WithRegion(s.opt.Region))
	}
	if s.opt.AccessKey != "" && s.opt.SecretKey != "" {
		out = append(out, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(s.opt.AccessKey, s.opt.SecretKey, "")))
	}
	return out
}

// pieceBytes is what a connection moves in one call to the system: a small object goes with its headers.
const pieceBytes = 64 << 10

// transport keeps enough idle connections for the blobs that are in flight at a time. It is of the library's kind, to
// which the library adds a CA bundle that the user has set.
func transport() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = 32
		t.WriteBufferSize, t.ReadBufferSize = pieceBytes, pieceBytes
		t.DisableCompression = true
	})
}

// noRedirect leaves redirects alone: a signature is good for one host.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// String names the store for messages; it has no secrets.
func (s *Store) String() string {
	name := strings.TrimSuffix("s3://"+s.opt.Bucket+"/"+s.prefix, "/")
	if s.opt.Endpoint != "" {
		name += " at " + s.opt.Endpoint
	}
	return name
}

// Close lets go of idle connections. Calls in progress go on.
func (s *Store) Close() error {
	if s.idle != nil {
		s.idle()
	}
	return nil
}

// key is where an object lies in the bucket. Keys have the length limit that names have, so a prefix shortens them.
func (s *Store) key(ctx context.Context, name string) (*string, error) {
	if err := cache.CheckName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return aws.String(s.prefix + name), nil
}

// Stat implements cache.Store.
func (s *Store) Stat(ctx context.Context, name string) (cache.Object, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return cache.Object{}, err
	}
	var out *s3.HeadObjectOutput
	err = s.try(ctx, 0, func(ctx context.Context) (err error) {
		out, err = s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.opt.Bucket, Key: key})
		return err
	})
	if err != nil {
		return cache.Object{}, fail("look for", name, err)
	}
	return cache.Object{Name: name, Size: aws.ToInt64(out.ContentLength), Time: seconds(out.LastModified)}, nil
}

// seconds drops what only some answers say: HEAD has whole seconds, a list may have more.
func seconds(t *time.Time) time.Time { return aws.ToTime(t).Truncate(time.Second).UTC() }

// Delete implements cache.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	key, err := s.key(ctx, name)
	if err != nil {
		return err
	}
	err = s.try(ctx, 0, func(ctx context.Context) error {
		_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.opt.Bucket, Key: key})
		return err
	})
	if err = fail("delete", name, err); errors.Is(err, cache.ErrNotFound) {
		return nil
	}
	return err
}
