package synth

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"lector/engine/weights"
)

// Reserved is a checkpoint of a preset's shapes whose values are all zero, but for the constants of the n-gram hash. It
// lies in addresses that cost no memory until they are written to: for whoever counts work and computes none.
type Reserved struct {
	*weights.Checkpoint
	Memory []byte // that the tensors lie in
}

// Reserve opens such a checkpoint. The released shapes take 352 GB of addresses.
func Reserve(o Options) (*Reserved, error) {
	r, err := o.reserve()
	if err != nil {
		return nil, fmt.Errorf("reserve a model of the shapes of %s: %w", o.Preset, err)
	}
	return r, nil
}

func (o Options) reserve() (*Reserved, error) {
	config, cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	list, err := tensors(cfg, o.Seed)
	if err != nil {
		return nil, err
	}
	head, err := header(list)
	if err != nil {
		return nil, err
	}
	total := int64(len(head))
	for _, t := range list {
		total += t.bytes()
	}
	memory, err := unix.Mmap(-1, 0, int(total), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", total, err)
	}
	copy(memory, head)
	at := int64(len(head))
	for _, t := range list {
		if t.fixed != nil {
			t.fill(memory[at:at+t.bytes()], 0)
		}
		at += t.bytes()
	}
	c, err := weights.OpenBytes(o.Preset, config, memory)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(memory))
	}
	return &Reserved{c, memory}, nil
}

// Close gives the addresses back.
func (r *Reserved) Close() error { return errors.Join(r.Checkpoint.Close(), unix.Munmap(r.Memory)) }
