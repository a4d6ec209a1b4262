//go:build linux && (amd64 || arm64)

package ptx

import (
	"errors"
	"sync"
	"unsafe"
)

// chunks keeps pieces of memory for the constant blocks of command buffers: host memory to gather them in, and device
// memory that one copy brings them to.
type chunks struct {
	device *device
	mu     sync.Mutex
	free   []*chunk
}

// chunk is one piece, on both sides.
type chunk struct {
	host *buffer
	at   uint64 // on the device
}

// chunkBytes is the least size of a chunk; larger ones are as large as a command buffer needs.
const chunkBytes = 64 << 10

// take is a chunk of at least n bytes. The caller's thread holds the context.
func (c *chunks) take(n int) (*chunk, error) {
	if k := c.find(n); k != nil {
		return k, nil
	}
	size := max(n, chunkBytes)
	k := &chunk{host: &buffer{device: c.device, size: size}}
	if err := k.host.mapHost(); err != nil {
		return nil, err
	}
	if err := c.device.driver.check("allocate room for constant blocks", c.device.driver.alloc(&k.at, uint64(size))); err != nil {
		return nil, errors.Join(err, k.host.Close())
	}
	return k, nil
}

func (c *chunks) find(n int) *chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range c.free {
		if k.host.size >= n {
			c.free = append(c.free[:i], c.free[i+1:]...)
			return k
		}
	}
	return nil
}

func (c *chunks) put(k *chunk) {
	if k == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, k)
}

func (c *chunks) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, k := range c.free {
		errs = append(errs, k.host.Close(), c.device.do(func() error {
			return c.device.driver.check("free the room for constant blocks", c.device.driver.free(k.at))
		}))
	}
	c.free = nil
	return errors.Join(errs...)
}

// blockAlign is where a block may begin: a float4 may be its first member.
const blockAlign = 16

// gather copies the blocks of a command buffer that its launches don't carry to the device in one go, ordered on the
// stream, and sets each binding's address.
func (c *commands) gather(stream uintptr) error {
	size := 0
	c.eachBlock(func(b *binding) { size += (len(b.block) + blockAlign - 1) / blockAlign * blockAlign })
	if size == 0 {
		return nil
	}
	d := c.queue.device
	k, err := d.chunks.take(size)
	if err != nil {
		return err
	}
	c.chunk = k
	used := 0
	c.eachBlock(func(b *binding) {
		copy(k.host.data[used:], b.block)
		b.at = k.at + uint64(used)
		used += (len(b.block) + blockAlign - 1) / blockAlign * blockAlign
	})
	return d.driver.check("copy constant blocks", d.driver.toDeviceAsync(k.at, unsafe.Pointer(unsafe.SliceData(k.host.data)), uint64(used), stream))
}

func (c *commands) eachBlock(visit func(*binding)) {
	for i := range c.steps {
		if x := c.steps[i].dispatch; x != nil {
			for j := range x.bindings {
				if x.bindings[j].block != nil && !x.bindings[j].carried() {
					visit(&x.bindings[j])
				}
			}
		}
	}
}
