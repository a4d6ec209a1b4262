package count

import (
	"context"
	"errors"
	"fmt"

	"lector/engine"
	"lector/engine/gpu"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
	"lector/engine/weights/synth"
	"lector/metal/record"
)

// Options say what is counted.
type Options struct {
	Preset  string // shapes: synth.Released, or one of synth.Presets
	Seed    uint64 // of the routing
	MaxRows int    // the largest chunk
}

// Row is what one chunk asks of a device.
type Row struct {
	Chunk    int `json:"chunk"`    // tokens
	Position int `json:"position"` // of the first
	Layers   int `json:"layers"`   // the draft head's included

	CommandBuffers int `json:"command_buffers"`
	HostWaits      int `json:"host_waits"`   // for the device
	StatusReads    int `json:"status_reads"` // of command buffers that an earlier wait has seen done
	Dispatches     int `json:"dispatches"`

	ExpertBytes int64 `json:"expert_bytes"` // read
	UniqueBytes int64 `json:"unique_bytes"` // of the records that the chunk uses

	Attention       int64 `json:"attention_flop"`        // scores of blocks, scores and sums of values
	AttentionPadded int64 `json:"attention_padded_flop"` // the same with the padding of matrix tiles
	AttentionLeast  int64 `json:"attention_least_flop"`  // for the tokens that rows see and the blocks that decide it

	Scratch     int64 `json:"scratch_bytes"`
	SeedScratch int64 `json:"seed_scratch_bytes"` // by the formula of an engine that holds a chunk's every intermediate
}

// Report is a table of counts.
type Report struct {
	Preset string `json:"preset"`
	Seed   uint64 `json:"seed"`
	Rows   []Row  `json:"rows"`
}

// Counter counts chunks of one model. Close it.
type Counter struct {
	options Options
	model   *synth.Reserved
	config  *weights.Config
	device  *record.Device
	backend *played
	engine  *qwen4exp.Engine
	work    attentionWork
}

// Open makes a counter.
func Open(o Options) (*Counter, error) {
	c := &Counter{options: o}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("count for the shapes of %s: %w", o.Preset, err), c.Close())
	}
	return c, nil
}

func (c *Counter) open() (err error) {
	if c.model, err = synth.Reserve(synth.Options{Preset: c.options.Preset}); err != nil {
		return err
	}
	c.config = c.model.Config()
	c.device = record.New(record.Options{Dispatch: c.dispatched})
	b, err := gpu.New(c.device, gpu.Options{Mapped: [][]byte{c.model.Memory}})
	if err != nil {
		return err
	}
	if c.backend, err = newPlayed(b, c.config, c.options.Seed); err != nil {
		return errors.Join(err, b.Close())
	}
	c.engine, err = qwen4exp.Open(c.model.Checkpoint, c.backend, qwen4exp.Options{MaxRows: c.options.MaxRows})
	return err
}

// dispatched looks at a dispatch as the device would run it.
func (c *Counter) dispatched(d record.Dispatch) {
	c.backend.play(d)
	c.work.add(d)
}

// Config is the model's.
func (c *Counter) Config() *weights.Config { return c.config }

// At counts one chunk at a position, behind a state that is made up.
func (c *Counter) At(ctx context.Context, chunk, position int) (Row, error) {
	row, err := c.at(ctx, chunk, position)
	if err != nil {
		return Row{}, fmt.Errorf("count a chunk of %d tokens at %d: %w", chunk, position, err)
	}
	return row, nil
}

func (c *Counter) at(ctx context.Context, chunk, position int) (Row, error) {
	s, err := c.engine.NewSequence(position + chunk)
	if err != nil {
		return Row{}, err
	}
	defer s.Close()
	if position > 0 {
		r, err := s.Restore(engine.Pos(position)) // of zeros, as the device's memory is
		if err != nil {
			return Row{}, err
		}
		if err := r.Commit(ctx); err != nil {
			return Row{}, err
		}
	}
	c.engine.ReleaseScratch()
	c.device.Reset()
	c.backend.begin()
	c.work = attentionWork{}
	if _, err := s.Prefill(ctx, make([]engine.Token, chunk), nil); err != nil {
		return Row{}, err
	}
	row := c.row(chunk, position)
	held := c.device.AllocatedBytes()
	c.engine.ReleaseScratch()
	row.Scratch = held - c.device.AllocatedBytes()
	if want := int64(c.engine.ScratchBytes(chunk, false)); row.Scratch != want {
		return Row{}, fmt.Errorf("the device held %d bytes for the chunk, its layout says %d", row.Scratch, want)
	}
	return row, c.backend.fault
}

func (c *Counter) row(chunk, position int) Row {
	counts := c.device.Counts()
	return Row{
		Chunk: chunk, Position: position, Layers: c.config.Layers + c.config.MTPLayers,
		CommandBuffers: counts.CommandBuffers, HostWaits: counts.HostWaits, StatusReads: counts.StatusReads, Dispatches: counts.Dispatches,
		ExpertBytes: c.backend.plan.Stats().Bytes, UniqueBytes: c.backend.unique,
		Attention: c.work.computed, AttentionPadded: c.work.padded, AttentionLeast: leastAttention(c.config, position, chunk),
		SeedScratch: seedScratch(c.config, position+chunk, chunk),
	}
}

// Close releases everything.
func (c *Counter) Close() error {
	var errs []error
	if c.engine != nil {
		errs = append(errs, c.engine.Close())
	}
	if c.backend != nil {
		errs = append(errs, c.backend.close())
	}
	if c.model != nil {
		errs = append(errs, c.model.Close())
	}
	return errors.Join(errs...)
}
