package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

const (
	family = "metal"
	grid   = 512
)

// ErrDevice says that the device failed; the message names the kernel. The results since the last Wait are void.
var ErrDevice = ops.ErrDevice

// Options are the settings of a Backend.
type Options struct {
	// Family begins the name of the numeric class: another device orders its sums otherwise. Empty means "metal".
	Family      string
	Float32     bool  // stage products in float32 instead of half: another numeric class
	MemoryBytes int64 // the most that is held on the device at one time; 0 sets no limit
	// Mapped lists host memory, such as mapped files, that begins at a multiple of the device's page and stays as it
	// is while the Backend lives. Matrices inside are read in place.
	Mapped [][]byte
}

// Backend computes on a device. The zero value is not usable; call New.
type Backend struct {
	device  metal.Device
	apart   metal.LocalMemory // of a device whose memory lies apart, else nil
	page    int
	family  string
	float32 bool
	limit   int64

	mu       sync.Mutex // guards everything below; an operation holds it from begin to end
	err      error      // the first since the last Wait
	lent     int64      // bytes held on the device
	cmd      commands
	waiting  matvecs // not in cmd yet
	copies   copies
	kernels  kernels
	weights  weights
	ropes    ropeTables
	scratch  arena                      // of the operation in progress, for the device alone
	uploads  arena                      // written by the host for pending work
	named    map[scratchPart]*memory    // scratch that is kept from operation to operation
	choices  choices                    // of blocks and experts, which the host reads
	resident map[*byte]*residentExperts // by the first expert of a layer
	dying    []*memory                  // freed, but pending work may use it
	sweep    ops.Sweep                  // whose records pending work uses; ended once that is done
	spent    [ops.Parts]time.Duration
}

// New opens a queue on the device, which stays the caller's to close after Close. Kernels are compiled as they are
// first used; Prepare compiles all of them.
func New(device metal.Device, o Options) (*Backend, error) {
	queue, err := device.NewQueue("lector")
	if err != nil {
		return nil, fmt.Errorf("open a queue on %s: %w", device.Properties().Name, err)
	}
	b := &Backend{
		device: device, page: max(1, device.Properties().PageBytes), float32: o.Float32, limit: o.MemoryBytes,
		family:   cmp.Or(o.Family, family),
		cmd:      commands{queue: queue},
		kernels:  newKernels(device),
		weights:  newWeights(o.Mapped),
		named:    map[scratchPart]*memory{},
		resident: map[*byte]*residentExperts{},
		uploads:  arena{place: shared},
	}
	b.apart, _ = device.(metal.LocalMemory)
	return b, nil
}

// Prepare compiles every kernel library, which is otherwise done on first use.
func (b *Backend) Prepare() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range shaders.Libraries() {
		if _, err := b.kernels.library(name); err != nil {
			return err
		}
	}
	return nil
}

// Class names the numeric class: "metal-h1", or "metal-f32" with Options.Float32.
func (b *Backend) Class() string {
	if b.float32 {
		return b.family + "-f32"
	}
	return b.family + "-h1"
}

// Grid is 512 tokens.
func (b *Backend) Grid() int { return grid }

// DeviceTime is how long the device has worked on everything waited for so far.
func (b *Backend) DeviceTime() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	total := time.Duration(0)
	for _, d := range b.spent {
		total += d
	}
	return total
}

// Spent implements ops.Late.
func (b *Backend) Spent() [ops.Parts]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}

// Mark implements ops.Late. The device's time is known by command buffer, so that another part begins another one.
func (b *Backend) Mark(part ops.Part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if part != b.cmd.part {
		b.flush()
		b.fail(b.cmd.commit())
		b.cmd.part = part
	}
}

// Begin implements ops.Beginner.
func (b *Backend) Begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flush()
	if b.cmd.count >= b.cmd.enough {
		b.fail(b.cmd.commit())
	}
}

// Err implements ops.Late.
func (b *Backend) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// HeldBytes is what the Backend holds on the device now: tensors, scratch and copies of weights.
func (b *Backend) HeldBytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lent
}

// Wait commits what is encoded, waits for all of it and returns the first error since the last Wait, or the context's.
// When ctx ends first the work goes on, and a later Wait waits for it.
func (b *Backend) Wait(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.drain(ctx); err != nil {
		return err
	}
	err := b.err
	b.err = nil
	return err
}

// drain commits and waits with b.mu released meanwhile. It returns only the context's error; the device's is kept.
//
// It waits once, for the last command buffer: a queue runs them in order, so that the others are done by then and
// their statuses are there to be read.
func (b *Backend) drain(ctx context.Context) error {
	b.flush()
	b.fail(b.cmd.commit())
	for len(b.cmd.flying) > 0 {
		flying := slices.Clone(b.cmd.flying)
		b.mu.Unlock()
		errs := make([]error, len(flying))
		last := len(flying) - 1
		errs[last] = flying[last].Wait(ctx)
		ended := errs[last] != nil && ctx.Err() != nil && errors.Is(errs[last], ctx.Err())
		for i := 0; i < last && !ended; i++ {
			errs[i] = flying[i].Wait(context.WithoutCancel(ctx))
		}
		b.mu.Lock()
		if ended {
			return ctx.Err()
		}
		b.land(flying, errs)
	}
	b.fail(b.copies.settle())
	b.endSweep()
	if b.cmd.open == nil {
		b.bury()
		b.ropes.landed()
	}
	return ctx.Err()
}

// land takes note of finished command buffers, each with its error.
func (b *Backend) land(done []flight, errs []error) {
	for i, f := range done {
		if !b.cmd.landed(f) {
			continue // another goroutine waited for it as well
		}
		b.spent[f.part] += f.DeviceTime()
		if errs[i] != nil {
			b.fail(fmt.Errorf("%w: %w", ErrDevice, errs[i]))
		}
	}
}

// fail keeps the first error since the last Wait.
func (b *Backend) fail(err error) {
	if b.err == nil && err != nil {
		b.err = err
	}
}

// DropScratch gives back what operations keep from one to the next: scratch, uploads, tables. Choices of blocks and
// experts made before are void.
func (b *Backend) DropScratch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropScratch()
}

func (b *Backend) dropScratch() {
	b.flush()
	for _, m := range b.named {
		b.release(m)
	}
	clear(b.named)
	b.scratch.release(b)
	b.uploads.release(b)
	b.ropes.release(b)
}

// Close waits for pending work and releases everything. Tensors must not be used again.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.drain(context.Background())
	errs := []error{err, b.err}
	b.dropScratch()
	b.choices.release(b)
	errs = append(errs, b.weights.close(b), b.kernels.close(), b.copies.close(), b.cmd.queue.Close())
	b.bury()
	return errors.Join(errs...)
}
