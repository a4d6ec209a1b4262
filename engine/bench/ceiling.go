package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"lector/engine/ops"
)

// Ceiling is what the machine can do, measured beside the results.
type Ceiling struct {
	GEMM    []GEMM    `json:"gemm"`
	Read    []float64 `json:"read_bytes_per_second"`     // a parallel read of a large buffer, one value a repeat
	Handoff []float64 `json:"handoff_seconds,omitempty"` // of a number from one worker to another, one value a repeat
	Workers int       `json:"workers"`
}

// GEMM is the backend's own product of float32 matrices, [M, K] by [N, K] transposed.
type GEMM struct {
	M       int       `json:"m"`
	N       int       `json:"n"`
	K       int       `json:"k"`
	Samples []float64 `json:"flop_per_second"`
}

// FLOPs is the best rate of any product, in operations a second; 0 where none was measured.
func (c Ceiling) FLOPs() float64 {
	best := 0.0
	for _, g := range c.GEMM {
		best = max(best, largest(g.Samples))
	}
	return best
}

// BytesPerSecond is the best rate of reading; 0 where none was measured.
func (c Ceiling) BytesPerSecond() float64 { return largest(c.Read) }

// HandoffSeconds is the median of handing over; 0 where none was measured.
func (c Ceiling) HandoffSeconds() float64 { return median(c.Handoff) }

func largest(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return slices.Max(list)
}

// Shapes of the products whose best rate is the ceiling: a cube, and a chunk of rows through a wide matrix.
func gemmShapes() []GEMM { return []GEMM{{M: 512, N: 512, K: 512}, {M: 256, N: 1024, K: 2048}} }

const (
	ceilingRepeats = 6
	gemmTurn       = 40 * time.Millisecond // of one sample
	readBytes      = 512 << 20             // far more than any cache holds
)

// MeasureGEMM fills c.GEMM with the backend's Linear over float32 weights.
func (c *Ceiling) MeasureGEMM(ctx context.Context, be ops.Backend) error {
	for _, g := range gemmShapes() {
		if err := g.measure(ctx, be); err != nil {
			return fmt.Errorf("measure the product of %dx%dx%d: %w", g.M, g.N, g.K, err)
		}
		c.GEMM = append(c.GEMM, g)
	}
	return nil
}

func (g *GEMM) measure(ctx context.Context, be ops.Backend) error {
	x, err := be.Alloc(g.M, g.K)
	if err != nil {
		return err
	}
	defer be.Free(x)
	y, err := be.Alloc(g.M, g.N)
	if err != nil {
		return err
	}
	defer be.Free(y)
	src := newSource(uint64(g.M))
	src.floats(x.Floats(), 1)
	w := ops.Matrix{Name: "ceiling", Out: g.N, In: g.K, Format: ops.F32, Data: make([]byte, 4*g.N*g.K)}
	values := make([]float32, g.N*g.K)
	src.floats(values, 1)
	for i, v := range values {
		binary.LittleEndian.PutUint32(w.Data[4*i:], math.Float32bits(v))
	}
	be.Linear(y, x, w) // scratch is made now
	if err := be.Wait(ctx); err != nil {
		return err
	}
	for range ceilingRepeats {
		calls, start := 0, time.Now()
		for time.Since(start) < gemmTurn {
			be.Linear(y, x, w)
			if err := be.Wait(ctx); err != nil {
				return err
			}
			calls++
		}
		g.Samples = append(g.Samples, 2*float64(g.M)*float64(g.N)*float64(g.K)*float64(calls)/time.Since(start).Seconds())
	}
	return nil
}

// MeasureRead fills c.Read: as many workers as c.Workers look for a byte that is not there through memory of the kind in which the
// backend, one on the host, holds weights.
func (c *Ceiling) MeasureRead(be ops.Backend) error {
	slots, err := be.AllocSlots(1, readBytes)
	if err != nil {
		return fmt.Errorf("measure reading memory: %w", err)
	}
	defer slots.Free()
	buffer := slots.Mem[0]
	for i := range buffer {
		buffer[i] = 1
	}
	workers := max(1, c.Workers)
	for range ceilingRepeats {
		var group sync.WaitGroup
		start := time.Now()
		for i := range workers {
			part := buffer[i*readBytes/workers : (i+1)*readBytes/workers]
			group.Go(func() {
				if bytes.IndexByte(part, 0) >= 0 {
					panic("bench: the buffer changed under its reader")
				}
			})
		}
		group.Wait()
		c.Read = append(c.Read, readBytes/time.Since(start).Seconds())
	}
	return nil
}
