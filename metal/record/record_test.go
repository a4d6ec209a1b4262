package record_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lector/metal"
	"lector/metal/record"
)

func TestCounts(t *testing.T) {
	var seen []string
	d := record.New(record.Options{Dispatch: func(x record.Dispatch) {
		seen = append(seen, x.Commands+"/"+x.Encoder+"/"+x.Kernel)
		x.Bindings[3].Bytes()[0] = x.Bindings[1].Bytes()[1] // what the kernel would have written
	}})
	l, err := d.Compile(metal.Source{Name: "any"})
	if err != nil {
		t.Fatal(err)
	}
	p, errP := l.Pipeline("route", nil)
	q, errQ := d.NewQueue("q")
	v, errV := d.NewEvent()
	large, errL := d.NewBuffer(200 << 30) // more than the machine has
	small, errS := d.NewBuffer(100)
	c, errC := q.NewCommandBuffer("layer 1")
	if err := errors.Join(errP, errQ, errV, errL, errS, errC); err != nil {
		t.Fatal(err)
	}
	c.WaitEvent(v, 7) // never holds
	e, err := c.Encoder("router")
	if err != nil {
		t.Fatal(err)
	}
	e.SetPipeline(p)
	e.SetBuffer(3, small, 50)
	e.SetBuffer(0, large, 0)
	e.SetBytes(1, []byte{1, 2, 3, 4})
	e.Dispatch(metal.Size{X: 4, Y: 2, Z: 1}, metal.Size{X: 32, Y: 2, Z: 1})
	e.Dispatch(metal.Size{X: 1, Y: 1, Z: 1}, metal.Size{X: 32, Y: 1, Z: 1})
	e.End()
	c.SignalEvent(v, 9)
	if err := errors.Join(c.Commit(), c.Wait(context.Background()), c.Wait(context.Background()), v.Wait(9, 0)); err != nil {
		t.Fatal(err)
	}
	if small.Bytes()[50] != 2 {
		t.Error("the callback did not write the buffer")
	}
	if want := []string{"layer 1/router/route", "layer 1/router/route"}; !cmp.Equal(seen, want) {
		t.Errorf("saw %q", seen)
	}
	if err := large.Close(); err != nil {
		t.Fatal(err)
	}
	want := record.Counts{CommandBuffers: 1, Encoders: 1, Dispatches: 2, HostWaits: 1, StatusReads: 1, HostEventWaits: 1, EventWaits: 1, EventSignals: 1, BlockBytes: 4, Libraries: 1, Pipelines: 1,
		Kernels: map[string]record.Work{"route": {Dispatches: 2, Groups: 9, Threads: 8*64 + 32}},
		Buffers: 1, BufferBytes: 16 << 10, PeakBytes: 200<<30 + 16<<10}
	if diff := cmp.Diff(want, d.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	d.Reset()
	want = record.Counts{Kernels: map[string]record.Work{}, Buffers: 1, BufferBytes: 16 << 10, PeakBytes: 16 << 10}
	if diff := cmp.Diff(want, d.Counts()); diff != "" {
		t.Errorf("counts after Reset (-want +got):\n%s", diff)
	}
}

// Misuse is refused as other devices refuse it.
func TestMisuse(t *testing.T) {
	d := record.New(record.Options{})
	q, err := d.NewQueue("q")
	if err != nil {
		t.Fatal(err)
	}
	l, _ := d.Compile(metal.Source{})
	p, _ := l.Pipeline("k", nil)
	x, err := d.NewBuffer(64)
	if err != nil {
		t.Fatal(err)
	}
	one := metal.Size{X: 1, Y: 1, Z: 1}
	for name, encode := range map[string]func(metal.Encoder){
		"no pipeline":        func(e metal.Encoder) { e.Dispatch(one, one) },
		"offset":             func(e metal.Encoder) { e.SetBuffer(0, x, 64) },
		"index":              func(e metal.Encoder) { e.SetBuffer(31, x, 0) },
		"block":              func(e metal.Encoder) { e.SetBytes(0, make([]byte, 5000)) },
		"threads":            func(e metal.Encoder) { e.SetPipeline(p); e.Dispatch(one, metal.Size{X: 2048, Y: 1, Z: 1}) },
		"threadgroup memory": func(e metal.Encoder) { e.SetThreadgroupMemory(0, 17) },
		"after End":          func(e metal.Encoder) { e.End(); e.SetPipeline(p) },
	} {
		c, _ := q.NewCommandBuffer("c")
		e, err := c.Encoder("e")
		if err != nil {
			t.Fatal(err)
		}
		encode(e)
		e.End()
		if err := c.Commit(); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	c, _ := q.NewCommandBuffer("c")
	if err := c.Wait(context.Background()); err == nil {
		t.Error("waited for what was not committed")
	}
	v, _ := d.NewEvent()
	if err := v.Wait(1, time.Millisecond); !errors.Is(err, metal.ErrTimeout) {
		t.Errorf("wait for what does not come: %v", err)
	}
	if n := d.Counts().CommandBuffers; n != 0 {
		t.Errorf("%d refused command buffers were counted", n)
	}
}
