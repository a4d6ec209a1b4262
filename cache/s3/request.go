package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"lector/cache"
)

// errSlow says that a try took longer than its limit; the caller's own context was not over.
var errSlow = errors.New("no answer in time")

// errRange says that the store answered another range than the one that was asked for.
var errRange = errors.New("store answered another range")

// try makes a request until it succeeds, fails for good, or has had its tries. bytes is what it moves.
func (s *Store) try(ctx context.Context, bytes int64, call func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		err := s.once(ctx, bytes, call)
		if err == nil {
			return nil
		}
		if over := ctx.Err(); over != nil {
			return over
		}
		if !passing(err) {
			return err
		}
		if attempt == s.opt.Attempts {
			return fmt.Errorf("%d tries: %w", attempt, err)
		}
		if err := sleep(ctx, backoff(s.opt.Backoff, attempt)); err != nil {
			return err
		}
	}
}

// once makes one try within its time limit.
func (s *Store) once(ctx context.Context, bytes int64, call func(context.Context) error) error {
	limit := s.opt.Timeout + time.Duration(bytes>>20)*time.Second
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := call(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w (%v): %v", errSlow, limit, err) // the library's context error is not the caller's
	}
	return err
}

// backoff is a random part of a wait that doubles with every attempt, so that clients that failed together come back
// apart.
func backoff(first time.Duration, attempt int) time.Duration {
	most := min(first<<min(attempt-1, 16), 50*first)
	return rand.N(most) + 1
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// passing says whether the same request may succeed later.
func passing(err error) bool {
	if errors.Is(err, errSlow) || errors.Is(err, errRange) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	if status(err) == http.StatusConflict { // another writer of the same key, or of a folder on the way to it, was at it
		return true
	}
	switch code(err) {
	case "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody": // damaged on the way
		return true
	case "RequestTimeTooSkewed": // the library has learnt the offset from the answer
		return true
	}
	return retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary
}

// code is the store's name for an error, or "".
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// status is the HTTP status of an error, or 0.
func status(err error) int {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// fail names the call and the object, and turns what a caller decides about into the cache's errors. nil stays nil.
func fail(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	c := code(err)
	switch {
	case c == "NoSuchBucket":
		return fmt.Errorf("%s %s: the bucket does not exist: create it, or name another: %w", verb, name, err)
	case status(err) == http.StatusNotFound:
		return fmt.Errorf("%s %s: %w", verb, name, cache.ErrNotFound)
	case c == "InvalidAccessKeyId", c == "SignatureDoesNotMatch", c == "ExpiredToken":
		return fmt.Errorf("%s %s: the store does not take these credentials: %w", verb, name, err)
	case status(err) == http.StatusForbidden:
		return fmt.Errorf("%s %s: the credentials do not allow this: %w", verb, name, err)
	}
	return fmt.Errorf("%s %s: %w", verb, name, err)
}
