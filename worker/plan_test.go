package worker_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"lector/worker"
)

func TestPlan(t *testing.T) {
	got := worker.Plan(20, 8, 5, 2)
	want := []worker.Cell{
		{From: 0, To: 8, Keep: false, Cuts: []int{5, 8}},
		{From: 8, To: 16, Keep: true, Cuts: []int{13, 16}},
		{From: 16, To: 20, Keep: true, Cuts: []int{20}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("plan is %+v, want %+v", got, want)
	}
	if got := worker.Plan(0, 8, 8, 8); len(got) != 0 {
		t.Errorf("plan of nothing is %+v", got)
	}
}

// The laws of a plan: cells tile the document, end at multiples of the grid or the end, no chunk is too long, and
// every eighth of the document has a kept state.
func TestPlanLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.IntRange(1, 3000).Draw(t, "tokens")
		grid := rapid.IntRange(1, 200).Draw(t, "grid")
		maxChunk := rapid.IntRange(1, 300).Draw(t, "max chunk")
		spread := rapid.IntRange(1, 12).Draw(t, "spread")
		cells := worker.Plan(tokens, grid, maxChunk, spread)
		at, kept, sinceKept := 0, 0, 0
		for i, c := range cells {
			last := i == len(cells)-1
			if c.From != at || c.To <= c.From || c.To-c.From > grid || !last && c.To%grid != 0 {
				t.Fatalf("cell %d is %+v after %d", i, c, at)
			}
			for _, cut := range c.Cuts {
				if cut <= at || cut-at > maxChunk {
					t.Fatalf("cell %+v has a chunk [%d, %d)", c, at, cut)
				}
				at = cut
			}
			if at != c.To {
				t.Fatalf("chunks of cell %+v end at %d", c, at)
			}
			if sinceKept++; c.Keep {
				kept, sinceKept = kept+1, 0
			}
			if sinceKept*spread > len(cells)+spread {
				t.Fatalf("%d of %d cells in a row are not kept", sinceKept, len(cells))
			}
			if last && !c.Keep {
				t.Fatal("the end is not kept")
			}
		}
		if at != tokens || kept != min(spread, len(cells)) {
			t.Fatalf("plan ends at %d of %d and keeps %d of %d cells", at, tokens, kept, len(cells))
		}
	})
}
