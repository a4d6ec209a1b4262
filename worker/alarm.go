package worker

import (
	"errors"
	"fmt"

	"lector/cache"
	"lector/queue"
)

// handleConflict is a job that has published another handle than this attempt made. It is cache.ErrDiverged.
type handleConflict struct {
	job              string
	stored, computed cache.Digest // of the handles
}

func (c *handleConflict) Error() string {
	return fmt.Sprintf("job %s has published handle %s, and this attempt made %s: %v",
		c.job, cache.HandleName(c.stored), cache.HandleName(c.computed), cache.ErrDiverged)
}

func (c *handleConflict) Unwrap() error { return cache.ErrDiverged }

// alarmOf is what an error says to whoever watches for computations that differ; nil when it is not of that kind.
func (a *attempt) alarmOf(err error) *queue.Alarm {
	var node *cache.Divergence
	var handle *handleConflict
	switch {
	case errors.As(err, &node):
		return &queue.Alarm{
			Of: "node", Key: node.Key.String(), From: node.From, To: node.To, Part: node.Part,
			Stored: node.Stored.String(), Computed: node.Computed.String(), Host: a.Host,
		}
	case errors.As(err, &handle):
		return &queue.Alarm{Of: "handle", Key: handle.job, Stored: handle.stored.String(), Computed: handle.computed.String(), Host: a.Host}
	}
	return nil
}
