package gpu_test

import (
	"fmt"
	"sync"

	"lector/metal"
)

// apart is a device whose memory lies apart from the host's, as a graphics card's does: a local buffer's Bytes is a copy,
// filled when it is asked for and given back when the buffer is bound next. What keeps a copy for longer, or writes to one
// that it did not ask for anew, computes nonsense on it as it would there.
type apart struct{ metal.Device }

func (d apart) NewLocalBuffer(size int) (metal.LocalBuffer, error) {
	b, err := d.NewBuffer(size)
	if err != nil {
		return nil, err
	}
	return &localBuffer{Buffer: b}, nil
}

func (d apart) NewQueue(label string) (metal.Queue, error) {
	q, err := d.Device.NewQueue(label)
	return apartQueue{q}, err
}

type localBuffer struct {
	metal.Buffer
	mu    sync.Mutex
	copy  []byte
	newer bool
}

func (b *localBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.newer {
		b.copy, b.newer = append([]byte(nil), b.Buffer.Bytes()...), true
	}
	return b.copy
}

func (b *localBuffer) Window(offset, size int) []byte { return b.Bytes()[offset : offset+size] }

func (b *localBuffer) Write(offset int, data []byte) error {
	if offset < 0 || offset+len(data) > len(b.Buffer.Bytes()) {
		return fmt.Errorf("write %d bytes at %d of a buffer of %d", len(data), offset, len(b.Buffer.Bytes()))
	}
	b.giveBack()
	copy(b.Buffer.Bytes()[offset:], data)
	return nil
}

func (b *localBuffer) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.newer {
		copy(b.Buffer.Bytes(), b.copy)
		b.newer = false
	}
}

type apartQueue struct{ metal.Queue }

func (q apartQueue) NewCommandBuffer(label string) (metal.CommandBuffer, error) {
	c, err := q.Queue.NewCommandBuffer(label)
	return apartCommands{c}, err
}

type apartCommands struct{ metal.CommandBuffer }

func (c apartCommands) Encoder(label string) (metal.Encoder, error) {
	e, err := c.CommandBuffer.Encoder(label)
	return apartEncoder{e}, err
}

type apartEncoder struct{ metal.Encoder }

func (e apartEncoder) SetBuffer(index int, b metal.Buffer, offset int) {
	if local, ok := b.(*localBuffer); ok {
		local.giveBack()
		b = local.Buffer
	}
	e.Encoder.SetBuffer(index, b, offset)
}
