package s3

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"lector/cache"
)

// List implements cache.Store, a page of up to a thousand objects a request. Keys that are no name of an object are
// left out.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[cache.Object, error] {
	return func(yield func(cache.Object, error) bool) {
		if err := cache.CheckPrefix(prefix); err != nil {
			yield(cache.Object{}, err)
			return
		}
		var token *string
		last := ""
		for {
			page, err := s.page(ctx, prefix, token)
			if err != nil {
				yield(cache.Object{}, fail("list", prefix, err))
				return
			}
			for _, entry := range page.Contents {
				o := s.object(entry)
				if cache.CheckName(o.Name) != nil {
					continue
				}
				if o.Name <= last {
					yield(cache.Object{}, fmt.Errorf("list %s: the store lists %s after %s: it does not keep the order of names", prefix, o.Name, last))
					return
				}
				last = o.Name
				if !yield(o, nil) {
					return
				}
			}
			if token = page.NextContinuationToken; !aws.ToBool(page.IsTruncated) || token == nil {
				return
			}
		}
	}
}

func (s *Store) page(ctx context.Context, prefix string, token *string) (page *s3.ListObjectsV2Output, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = s.try(ctx, 0, func(ctx context.Context) error {
		page, err = s.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
			Bucket: &s.opt.Bucket, Prefix: aws.String(s.prefix + prefix), ContinuationToken: token,
		})
		return err
	})
	return page, err
}

func (s *Store) object(e types.Object) cache.Object {
	return cache.Object{Name: strings.TrimPrefix(aws.ToString(e.Key), s.prefix), Size: aws.ToInt64(e.Size), Time: seconds(e.LastModified)}
}
