package metal_test

import (
	"strings"
	"testing"

	"lector/metal"
)

// bounded is a pipeline that can run in 256 threads.
type bounded struct{}

func (bounded) Kernel() string  { return "norm_rows" }
func (bounded) MaxThreads() int { return 256 }
func (bounded) Close() error    { return nil }

func TestCheckDispatch(t *testing.T) {
	size := func(x, y, z int) metal.Size { return metal.Size{X: x, Y: y, Z: z} }
	for _, c := range []struct {
		groups, threads metal.Size
		ok              bool
	}{
		{size(1, 1, 1), size(256, 1, 1), true},
		{size(1<<30, 1, 1), size(16, 16, 1), true},
		{size(0, 1, 1), size(1, 1, 1), false},
		{size(1, -1, 1), size(1, 1, 1), false},
		{size(1, 1, 1<<30+1), size(1, 1, 1), false},
		{size(1, 1, 1), size(1, 0, 1), false},
		{size(1, 1, 1), size(257, 1, 1), false},
		{size(1, 1, 1), size(16, 17, 1), false},
		{size(1, 1, 1), size(1<<62, 4, 1), false}, // the product overflows
	} {
		err := metal.CheckDispatch(bounded{}, c.groups, c.threads)
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "norm_rows") {
			t.Errorf("%v groups of %v: %v", c.groups, c.threads, err)
		}
	}
}
