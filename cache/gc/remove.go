package gc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"lector/cache"
	"lector/cache/tag"
)

// ErrTagged says that a handle has tags, which would then point nowhere.
var ErrTagged = errors.New("handle has a tag")

// Remove deletes a handle, damaged or not; Run collects what it alone reached. Errors: cache.ErrNotFound, and
// ErrTagged naming the tags.
func Remove(ctx context.Context, s *cache.Space, handle cache.Digest) error {
	var tags []string
	for t, err := range tag.All(ctx, s) {
		if err != nil {
			return fmt.Errorf("remove handle: %w", err)
		}
		if t.Handle == handle {
			tags = append(tags, t.Name)
		}
	}
	if len(tags) > 0 {
		return fmt.Errorf("%w: %s: take it away first with lector snapshot tag --delete %s", ErrTagged, strings.Join(tags, ", "), tags[0])
	}
	name := s.TenantName() + "/handles/" + handle.String()
	if _, err := s.Store.Stat(ctx, name); err != nil {
		return fmt.Errorf("remove handle: %w", err)
	}
	if err := s.Store.Delete(ctx, name); err != nil {
		return fmt.Errorf("remove handle: %w", err)
	}
	return nil
}
