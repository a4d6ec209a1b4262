package s3

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// maxPresign is the longest life of a presigned URL that the protocol has.
const maxPresign = 7 * 24 * time.Hour

// Presigned is a request that needs no credentials while it lives.
type Presigned struct {
	Method string
	URL    string
	Header http.Header // must be sent as they are
}

// PresignGet makes a URL that reads the object for the given time, seven days at most.
func (s *Store) PresignGet(ctx context.Context, name string, life time.Duration) (Presigned, error) {
	return s.presign(ctx, name, life, func(c *s3.PresignClient, key *string, life func(*s3.PresignOptions)) (*v4.PresignedHTTPRequest, error) {
		return c.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &s.opt.Bucket, Key: key}, life)
	})
}

// PresignPut makes a URL that writes the object if it is absent, within the given time. The body is not fixed by it:
// who reads the object checks its digest, as always.
func (s *Store) PresignPut(ctx context.Context, name string, life time.Duration) (Presigned, error) {
	return s.presign(ctx, name, life, func(c *s3.PresignClient, key *string, life func(*s3.PresignOptions)) (*v4.PresignedHTTPRequest, error) {
		return c.PresignPutObject(ctx, &s3.PutObjectInput{Bucket: &s.opt.Bucket, Key: key, IfNoneMatch: aws.String("*")}, life)
	})
}

type signer func(c *s3.PresignClient, key *string, life func(*s3.PresignOptions)) (*v4.PresignedHTTPRequest, error)

func (s *Store) presign(ctx context.Context, name string, life time.Duration, sign signer) (Presigned, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return Presigned{}, err
	}
	if life <= 0 || life > maxPresign {
		return Presigned{}, fmt.Errorf("presign %s: %v is not above 0 and at most %v", name, life, maxPresign)
	}
	r, err := sign(s3.NewPresignClient(s.client), key, func(o *s3.PresignOptions) { o.Expires = life })
	if err != nil {
		return Presigned{}, fmt.Errorf("presign %s: %w", name, err)
	}
	r.SignedHeader.Del("Host") // the URL's own
	return Presigned{Method: r.Method, URL: r.URL, Header: r.SignedHeader}, nil
}
