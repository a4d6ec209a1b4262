package cpu

import "testing"

// The experts of one call, left in what the next works in, would be gone through again and again.
func TestNoExpertReachesTheNextCall(t *testing.T) {
	var memories kept[expertRun, *expertRun]
	m := memories.take()
	m.active = append(m.active, activeExpert{from: 1, to: 3})
	m.sorted = append(m.sorted, activeExpert{from: 3, to: 5})
	m.k = 4
	memories.put(m)
	next := memories.take()
	if next != m {
		t.Fatal("what a call worked in is not handed over")
	}
	if next.k != 0 || len(next.active) != 0 || len(next.sorted) != 0 {
		t.Errorf("the next call begins with %d experts in flight and %d sorted, not with none", len(next.active), len(next.sorted))
	}
	if e := next.active[:1][0]; e.to != 0 {
		t.Errorf("pairs up to %d are still there", e.to)
	}
}
