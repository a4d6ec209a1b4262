package worker

import (
	"context"
	"testing"
)

// Without a tracer drawing costs nothing.
func TestNoTracerIsFree(t *testing.T) {
	w, ctx := &Worker{}, context.Background()
	allocs := testing.AllocsPerRun(1000, func() {
		inside, end := w.span(ctx, "prefill")
		w.drawn(inside, 4096, 8192)
		end(nil)
		if inside != ctx {
			t.Error("the context is another")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
