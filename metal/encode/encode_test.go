package encode_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"lector/metal"
	"lector/metal/encode"
)

// bounded is a pipeline that can run in 256 threads.
type bounded struct{}

func (bounded) Kernel() string  { return "norm_rows" }
func (bounded) MaxThreads() int { return 256 }
func (bounded) Close() error    { return nil }

func TestGrid(t *testing.T) {
	size := func(x, y, z int) metal.Size { return metal.Size{X: x, Y: y, Z: z} }
	for _, c := range []struct {
		groups, threads metal.Size
		ok              bool
	}{
		{size(1, 1, 1), size(256, 1, 1), true},
		{size(1<<30, 1, 1), size(16, 16, 1), true},
		{size(0, 1, 1), size(1, 1, 1), false},
		{size(1, -1, 1), size(1, 1, 1), false},
		{size(1, 1, 1<<30+1), size(1, 1, 1), false},
		{size(1, 1, 1), size(1, 0, 1), false},
		{size(1, 1, 1), size(257, 1, 1), false},
		{size(1, 1, 1), size(16, 17, 1), false},
		{size(1, 1, 1), size(1<<62, 4, 1), false}, // the product overflows
	} {
		b, e := begun(t)
		if !e.Choose(bounded{}) {
			t.Fatal("a pipeline was not taken")
		}
		ok := e.Grid(c.groups, c.threads)
		e.End()
		err := b.Commit(func() error { return nil })
		if ok != c.ok || (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "norm_rows") {
			t.Errorf("%v groups of %v: %v, %v", c.groups, c.threads, ok, err)
		}
	}
}

// begun is a command buffer whose encoder is open.
func begun(t *testing.T) (*encode.Commands, *encode.Encoder) {
	b, e := encode.New("chunk"), new(encode.Encoder)
	if err := b.Begin(e, "rows"); err != nil {
		t.Fatal(err)
	}
	return &b, e
}

// TestMisuse holds that what may not be encoded is said to be refused, and that the first of it is the result of Commit and of
// Wait, with nothing handed over.
func TestMisuse(t *testing.T) {
	one := metal.Size{X: 1, Y: 1, Z: 1}
	for _, c := range []struct {
		name, says string
		use        func(b *encode.Commands, e *encode.Encoder) bool // what it says of the misuse
	}{
		{"no pipeline", "before SetPipeline", func(_ *encode.Commands, e *encode.Encoder) bool { return e.Grid(one, one) }},
		{"an index too large", "buffer index 31", func(_ *encode.Commands, e *encode.Encoder) bool { return e.Buffer(metal.MaxBuffers, 0, 16) }},
		{"past the end", "offset 16 of 16", func(_ *encode.Commands, e *encode.Encoder) bool { return e.Buffer(0, 16, 16) }},
		{"an empty block", "not 0", func(_ *encode.Commands, e *encode.Encoder) bool { return e.Block(0, 0) }},
		{"odd memory", "multiple of 16", func(_ *encode.Commands, e *encode.Encoder) bool { return e.Memory(0, 24, 64) }},
		{"too much memory", "up to 64", func(_ *encode.Commands, e *encode.Encoder) bool { return e.Memory(0, 80, 64) }},
		{"another's buffer", "a buffer of another device", func(_ *encode.Commands, e *encode.Encoder) bool { return e.Ours("a buffer", false) }},
		{"another's event", "an event of another device", func(b *encode.Commands, _ *encode.Encoder) bool { return b.Ours("an event", false) }},
		{"two encoders", "before the encoder's End", func(b *encode.Commands, _ *encode.Encoder) bool { return b.Begin(new(encode.Encoder), "two") == nil }},
		{"after the end", "SetBytes after End", func(_ *encode.Commands, e *encode.Encoder) bool { e.End(); return e.Block(0, 4) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, e := begun(t)
			if c.use(b, e) {
				t.Error("it was taken")
			}
			e.Block(-7, 4) // a second misuse, which is not told
			e.End()
			handed := false
			err := b.Commit(func() error { handed = true; return nil })
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `"chunk"`) || handed {
				t.Errorf("Commit: %v, handed over: %v; want %q", err, handed, c.says)
			}
			if waited := b.Wait(t.Context()); !errors.Is(waited, err) {
				t.Errorf("Wait: %v; Commit: %v", waited, err)
			}
		})
	}
}

func TestCommitOnce(t *testing.T) {
	b := encode.New("chunk")
	if err := b.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "not committed") {
		t.Errorf("a wait before Commit: %v", err)
	}
	handed := 0
	submit := func() error { handed++; return nil }
	if err := b.Commit(submit); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(submit); err == nil || handed != 1 {
		t.Errorf("a second Commit: %v, handed over %d times", err, handed)
	}
	if b.Writable("an event") {
		t.Error("something may be encoded after Commit")
	}
}

// TestOpenEncoder holds that a command buffer whose encoder was not ended is not handed over.
func TestOpenEncoder(t *testing.T) {
	b, _ := begun(t)
	if err := b.Commit(func() error { t.Error("handed over"); return nil }); err == nil || !strings.Contains(err.Error(), `"rows" was not ended`) {
		t.Error(err)
	}
}

// TestWait holds that work which is done is told as done, whatever became of the context meanwhile.
func TestWait(t *testing.T) {
	b := encode.New("chunk")
	if err := b.Commit(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Wait(ctx); !errors.Is(err, context.Canceled) || b.Done() || b.DeviceTime() != 0 {
		t.Errorf("before its end: %v, done %v, %v", err, b.Done(), b.DeviceTime())
	}
	lost := errors.New("the device was lost")
	b.Finish(lost, time.Second)
	for range 100 { // select takes either of two that are ready
		if err := b.Wait(ctx); !errors.Is(err, lost) {
			t.Fatalf("after its end: %v", err)
		}
	}
	if b.DeviceTime() != time.Second {
		t.Errorf("it took %v", b.DeviceTime())
	}
}
