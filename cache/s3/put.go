package s3

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"

	"lector/cache"
)

// askFirst is the size from which a put-if-absent asks whether the object is there before it sends the body: one
// small request against megabytes that would be refused.
const askFirst = 256 << 10

// Put implements cache.Store. The body is read once for its digest and size, unless it says them, and once for each try.
func (s *Store) Put(ctx context.Context, name string, body io.ReadSeeker, size int64, how cache.PutMode) error {
	key, err := s.key(ctx, name)
	if err != nil {
		return err
	}
	if how == cache.IfAbsent && size >= askFirst {
		switch _, err := s.Stat(ctx, name); {
		case err == nil:
			return fmt.Errorf("put %s: %w", name, cache.ErrExists)
		case !errors.Is(err, cache.ErrNotFound):
			return err
		}
	}
	sum, err := digest(ctx, body, size)
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	in := &s3.PutObjectInput{Bucket: &s.opt.Bucket, Key: key, ContentLength: &size}
	if !s.opt.Compatible {
		in.ChecksumSHA256 = aws.String(base64.StdEncoding.EncodeToString(sum))
	}
	if how == cache.IfAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	err = s.try(ctx, size, func(ctx context.Context) error { return s.put(ctx, in, body, sum) })
	if how == cache.IfAbsent && status(err) == http.StatusPreconditionFailed {
		return fmt.Errorf("put %s: %w", name, cache.ErrExists)
	}
	return fail("put", name, err)
}

// digest reads the body from its start and refuses one that is not of its size. Of one whose digest is known it only asks
// the size: the store refuses other bytes.
func digest(ctx context.Context, body io.ReadSeeker, size int64) ([]byte, error) {
	if s, ok := body.(cache.Summed); ok {
		if d, known := s.SHA256(); known {
			return d[:], sized(body, size)
		}
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	h := sha256.New()
	n, err := io.Copy(h, cache.ContextReader(ctx, io.LimitReader(body, size+1)))
	if err != nil {
		return nil, err
	}
	if n != size {
		return nil, fmt.Errorf("body does not have %d bytes: %w", size, io.ErrUnexpectedEOF)
	}
	return h.Sum(nil), nil
}

// sized refuses a body that is not of its size.
func sized(body io.ReadSeeker, size int64) error {
	n, err := body.Seek(0, io.SeekEnd)
	if err == nil && n != size {
		err = fmt.Errorf("body has %d bytes, not %d: %w", n, size, io.ErrUnexpectedEOF)
	}
	return err
}

// put is one try. The answer may say which bytes the store has kept.
func (s *Store) put(ctx context.Context, in *s3.PutObjectInput, body io.ReadSeeker, sum []byte) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	again := *in
	again.Body = body
	out, err := s.client.PutObject(ctx, &again, s3.WithAPIOptions(signDigest(sum)))
	if err != nil {
		return err
	}
	if kept := aws.ToString(out.ChecksumSHA256); in.ChecksumSHA256 != nil && kept != "" && kept != *in.ChecksumSHA256 {
		return fmt.Errorf("the store has kept bytes with the SHA-256 %s, and %s was sent: it damages what it is given", kept, *in.ChecksumSHA256)
	}
	return nil
}

// signDigest makes the digest part of the signature, over TLS too, and saves the library a pass over the body.
func signDigest(sum []byte) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("SignDigest",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				return next.HandleInitialize(v4.SetPayloadHash(ctx, hex.EncodeToString(sum)), in)
			}), middleware.Before)
	}
}
