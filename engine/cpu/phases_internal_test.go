package cpu

import (
	"fmt"
	"testing"
)

// passing is a task whose items read what the others of the phase before wrote, and work for a while.
type passing struct {
	rows  [2][64][64]float32
	turns int
}

func (p *passing) do(s *scratch, phase, from, to int) {
	in, out := &p.rows[phase%2], &p.rows[1-phase%2]
	for i := from; i < to; i++ {
		var sum float32
		for j := range in {
			sum += in[j][0]
		}
		for range p.turns {
			sum = sum*0.5 + 1
		}
		for j := i % 64; j < 64; j += 64 {
			for k := range out[j] {
				out[j][k] = sum
			}
		}
	}
}

// What a phase takes beside its items.
func BenchmarkPhases(b *testing.B) {
	for _, workers := range []int{1, 2} {
		be := New(Options{Workers: workers})
		for _, n := range []int{2, 3, 8, 24} {
			b.Run(fmt.Sprint(workers, " workers ", n, " items"), func(b *testing.B) {
				phases := make([]phase, 60)
				for i := range phases {
					phases[i] = phase{n, 1}
				}
				t := &passing{turns: 500}
				for b.Loop() {
					be.inPhases(t, phases...)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/60, "ns/phase")
			})
		}
	}
}
