package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lector/metal"
)

// fake is a device that executes nothing: it counts, and fails where it is told to.
type fake struct {
	page     int
	room     int64 // bytes that NewBuffer has left; negative: no limit
	live     int   // open buffers
	made     int   // buffers ever made
	wrapped  [][]byte
	compiled []string
	kernels  []string          // of all dispatches, in order
	binds    map[string][]bind // the last dispatch's buffers, by kernel
	encoders []string
	buffers  []*fakeCommands  // all command buffers
	broken   map[string]error // of pipelines, by kernel
	fault    error            // of the next command buffer that is waited for
	hold     bool             // Wait returns only with its context
}

type bind struct {
	buffer *fakeBuffer
	offset int
}

func newFake() *fake {
	return &fake{page: 4096, room: -1, binds: map[string][]bind{}, broken: map[string]error{}}
}

func (f *fake) Properties() metal.Properties {
	return metal.Properties{Name: "fake", PageBytes: f.page, MaxThreads: 1024, SimdWidth: 32}
}

func (f *fake) NewBuffer(size int) (metal.Buffer, error) {
	if f.room >= 0 && int64(size) > f.room {
		return nil, metal.ErrMemory
	}
	if f.room >= 0 {
		f.room -= int64(size)
	}
	f.live++
	f.made++
	return &fakeBuffer{device: f, data: make([]byte, size)}, nil
}

func (f *fake) WrapBuffer(data []byte) (metal.Buffer, error) {
	f.live++
	f.wrapped = append(f.wrapped, data)
	return &fakeBuffer{device: f, data: data}, nil
}

func (f *fake) Compile(s metal.Source) (metal.Library, error) {
	f.compiled = append(f.compiled, s.Name)
	return &fakeLibrary{f}, nil
}

func (f *fake) NewQueue(string) (metal.Queue, error) { return &fakeQueue{f}, nil }

func (f *fake) NewEvent() (metal.SharedEvent, error) { return nil, errors.New("no events here") }

func (f *fake) AllocatedBytes() int64 { return 0 }

func (f *fake) Close() error { return nil }

type fakeBuffer struct {
	device *fake
	data   []byte
	closed bool
}

func (b *fakeBuffer) Bytes() []byte { return b.data }

func (b *fakeBuffer) Close() error {
	if b.closed {
		return errors.New("buffer is closed twice")
	}
	for _, c := range b.device.buffers {
		if !c.done && c.uses[b] {
			return errors.New("buffer is closed while work uses it")
		}
	}
	b.closed = true
	b.device.live--
	if b.device.room >= 0 {
		b.device.room += int64(len(b.data))
	}
	return nil
}

type fakeLibrary struct{ device *fake }

func (l *fakeLibrary) Kernels() []string { return nil }

func (l *fakeLibrary) Pipeline(kernel string, _ []metal.Constant) (metal.Pipeline, error) {
	if err := l.device.broken[kernel]; err != nil {
		return nil, err
	}
	return fakePipeline(kernel), nil
}

func (l *fakeLibrary) Close() error { return nil }

type fakePipeline string

func (p fakePipeline) Kernel() string  { return string(p) }
func (p fakePipeline) MaxThreads() int { return 1024 }
func (p fakePipeline) Close() error    { return nil }

type fakeQueue struct{ device *fake }

func (q *fakeQueue) NewCommandBuffer(string) (metal.CommandBuffer, error) {
	c := &fakeCommands{device: q.device, uses: map[*fakeBuffer]bool{}}
	q.device.buffers = append(q.device.buffers, c)
	return c, nil
}

func (q *fakeQueue) Close() error { return nil }

type fakeCommands struct {
	device     *fake
	uses       map[*fakeBuffer]bool
	dispatches int
	committed  bool
	done       bool
}

func (c *fakeCommands) Encoder(label string) (metal.Encoder, error) {
	c.device.encoders = append(c.device.encoders, label)
	return &fakeEncoder{commands: c, binds: make([]bind, 31)}, nil
}

func (c *fakeCommands) WaitEvent(metal.SharedEvent, uint64)   {}
func (c *fakeCommands) SignalEvent(metal.SharedEvent, uint64) {}

func (c *fakeCommands) Commit() error {
	if c.committed {
		return errors.New("committed twice")
	}
	c.committed = true
	return nil
}

func (c *fakeCommands) Wait(ctx context.Context) error {
	if !c.committed {
		return errors.New("waited for before commit")
	}
	if c.device.hold {
		<-ctx.Done()
		return ctx.Err()
	}
	c.done = true
	err := c.device.fault
	c.device.fault = nil
	return err
}

func (c *fakeCommands) DeviceTime() time.Duration { return time.Millisecond }

type fakeEncoder struct {
	commands *fakeCommands
	kernel   string
	binds    []bind
}

func (e *fakeEncoder) SetPipeline(p metal.Pipeline) { e.kernel = p.Kernel() }

func (e *fakeEncoder) SetBuffer(index int, b metal.Buffer, offset int) {
	e.binds[index] = bind{b.(*fakeBuffer), offset}
	e.commands.uses[b.(*fakeBuffer)] = true
}

func (e *fakeEncoder) SetBytes(int, []byte)          {}
func (e *fakeEncoder) SetThreadgroupMemory(_, _ int) {}
func (e *fakeEncoder) End()                          {}

func (e *fakeEncoder) Dispatch(groups, threads metal.Size) {
	if groups.X*groups.Y*groups.Z*threads.X*threads.Y*threads.Z == 0 {
		panic(fmt.Sprintf("%s: an empty dispatch", e.kernel))
	}
	e.commands.dispatches++
	e.commands.device.kernels = append(e.commands.device.kernels, e.kernel)
	e.commands.device.binds[e.kernel] = append([]bind(nil), e.binds...)
}
