package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"lector/engine"
	"lector/engine/bench"
	"lector/engine/gpu"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
	"lector/engine/weights/pack"
	"lector/engine/weights/synth"
	"lector/metal"
)

// Prefills of one document give one digest, with the ring, the copies of records and the kernels in full overlap: the
// memory is too small for the experts, so that every chunk streams. Each planted fault has to change it.

const prefills = 100

// digests are the checks of it.
func digests(ctx context.Context, d metal.Device, faulty func(text string) string) []check {
	folder, err := os.MkdirTemp("", "lector-digests-")
	if err != nil {
		return []check{{"a hundred prefills", err, ""}}
	}
	defer os.RemoveAll(folder)
	store, err := packed(ctx, folder, synth.Options{Preset: "tiny", Layers: 4, Experts: 96, Seed: 4}, pack.Settings{Bits: 4, ExpertsBits: 4, Group: 32})
	if err != nil {
		return []check{{"a hundred prefills", err, ""}}
	}
	var right [32]byte
	all := []check{}
	different, err := 0, prefilled(ctx, d, store, 1, func(_ int, sum [32]byte) { right = sum })
	if err == nil {
		err = prefilled(ctx, d, store, prefills, func(_ int, sum [32]byte) {
			if sum != right {
				different++
			}
		})
	}
	if err == nil && different > 0 {
		err = fmt.Errorf("%d of %d digests differ", different, prefills)
	}
	all = append(all, check{"a hundred prefills give one digest", err, fmt.Sprintf("%d prefills of 1,024 tokens, experts streamed", prefills)})
	for name, device := range map[string]metal.Device{
		"a missing barrier changes the digest":    &faultyDevice{Device: d, LocalMemory: d.(metal.LocalMemory), text: faulty},
		"a dropped event wait changes the digest": &faultyDevice{Device: d, LocalMemory: d.(metal.LocalMemory), text: same, dropWaits: true},
	} {
		changed := 0
		err := prefilled(ctx, device, store, 5, func(_ int, sum [32]byte) {
			if sum != right {
				changed++
			}
		})
		if errors.Is(err, engine.ErrNumeric) || errors.Is(err, engine.ErrDevice) {
			changed, err = changed+1, nil // numbers that are none are noticed as well
		}
		if err == nil && changed == 0 {
			err = errors.New("the digest stayed what it was")
		}
		all = append(all, check{name, err, fmt.Sprintf("in %d of 5 prefills", changed)})
	}
	return all
}

func same(text string) string { return text }

// packed makes a random store.
func packed(ctx context.Context, folder string, o synth.Options, s pack.Settings) (string, error) {
	source, store := filepath.Join(folder, "source"), filepath.Join(folder, "store")
	if err := synth.Write(ctx, source, o); err != nil {
		return "", err
	}
	c, err := weights.Open(source)
	if err != nil {
		return "", err
	}
	_, err = pack.Run(ctx, c, store, pack.Options{Settings: s})
	return store, errors.Join(err, c.Close(), os.RemoveAll(source))
}

// prefilled reads one document n times, each in a sequence of its own, and hands on the digests.
func prefilled(ctx context.Context, d metal.Device, store string, n int, each func(i int, sum [32]byte)) error {
	return onDevice(d, func(be *gpu.Backend) error {
		c, err := weights.Open(store)
		if err != nil {
			return err
		}
		defer c.Close()
		roomy, err := open(c, be)
		if err != nil {
			return err
		}
		least, err := roomy.LeastMemory()
		if err := errors.Join(err, roomy.Close()); err != nil {
			return err
		}
		e, err := qwen4exp.Open(c, be, qwen4exp.Options{Tokenizer: "none", Memory: int(least) + 24<<20})
		if err != nil {
			return err
		}
		defer e.Close()
		tokens := bench.RandomTokens(3, 1024, e.Info().Vocabulary)
		for i := range n {
			s, err := read(ctx, e, tokens, min(256, e.Info().MaxChunk))
			if err != nil {
				return err
			}
			each(i, digest(s))
		}
		return nil
	})
}

// withoutBarrier is the source of the experts' products without the barriers between writing a tile and reading it: all of
// them, since which one a run trips over is chance. Other sources stay as they are.
func withoutBarrier(text string) string {
	if !strings.Contains(text, "kernel void moe_gemm") {
		return text
	}
	return strings.ReplaceAll(text, "threadgroup_barrier(mem_flags::mem_threadgroup);", "simdgroup_barrier(mem_flags::mem_threadgroup);")
}

// faultyDevice is a device with a fault planted.
type faultyDevice struct {
	metal.Device
	metal.LocalMemory
	text      func(string) string // of a kernel source
	dropWaits bool                // of one queue for another
}

func (d *faultyDevice) Compile(s metal.Source) (metal.Library, error) {
	s.Text = d.text(s.Text)
	return d.Device.Compile(s)
}

func (d *faultyDevice) NewQueue(label string) (metal.Queue, error) {
	q, err := d.Device.NewQueue(label)
	if d.dropWaits && err == nil {
		q = deafQueue{q}
	}
	return q, err
}

type deafQueue struct{ metal.Queue }

func (q deafQueue) NewCommandBuffer(label string) (metal.CommandBuffer, error) {
	c, err := q.Queue.NewCommandBuffer(label)
	return deafCommands{c}, err
}

// deafCommands waits for no event.
type deafCommands struct{ metal.CommandBuffer }

func (deafCommands) WaitEvent(metal.SharedEvent, uint64) {}
