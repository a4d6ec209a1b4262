package gpu_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"unsafe"

	"lector/engine/gpu"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
	"lector/metal"
	"lector/metal/record"
	"lector/shaders"
)

// playRoute plays moe_route on a device that executes nothing: the experts of every row are drawn from a seed.
func playRoute(seed uint64) func(record.Dispatch) {
	source := rand.New(rand.NewPCG(seed, 4))
	return func(d record.Dispatch) {
		if d.Kernel != "moe_route" {
			return
		}
		p := (*shaders.RouteParams)(unsafe.Pointer(unsafe.SliceData(d.Bindings[shaders.Params].Block)))
		slots := int(p.Slots)
		experts := int32s(d.Bindings[shaders.RouteExpert].Bytes())[:int(p.Rows)*slots]
		for row := 0; row < len(experts); row += slots {
			for i, e := range source.Perm(int(p.Experts))[:slots] {
				experts[row+i] = int32(e)
			}
		}
	}
}

func int32s(data []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}

// A layer of a prefill costs the host one wait, for its routing, wherever the experts are.
func TestOneHostWaitALayer(t *testing.T) {
	const layers = 8
	stored := packTiny(t)
	for name, dir := range map[string]string{"experts in memory": filepath.Join(fixtures, "tiny"), "experts in storage": stored} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 3, layers} {
				c := prefillCounts(t, dir, n, 25)
				// beyond the layers: one for the draft head's layer, then the logits, the draft and the state
				if c.HostWaits != n+1+3 {
					t.Errorf("%d layers and the draft head: %d host waits, want %d", n, c.HostWaits, n+1+3)
				}
				if c := prefillCounts(t, dir, n, 9); name == "experts in memory" && c.HostWaits != 3 {
					t.Errorf("few rows, %d layers: %d host waits, want 3: the device itself knows where experts are", n, c.HostWaits)
				}
				if c.CommandBuffers != c.HostWaits+c.StatusReads {
					t.Errorf("%d layers: the statuses of %d command buffers were read, %d ran", n, c.HostWaits+c.StatusReads, c.CommandBuffers)
				}
			}
		})
	}
}

// A chunk that is cancelled between layers is put back: the next one runs as if it had never been.
func TestCancelledBetweenLayers(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	route, routes := playRoute(1), 0
	m := openRecorded(t, filepath.Join(fixtures, "tiny"), func(d record.Dispatch) {
		if d.Kernel == "moe_route" {
			if routes++; routes == 3 {
				cancel()
			}
		}
		route(d)
	})
	tokens := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	if _, err := m.sequence.Prefill(ctx, tokens, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled chunk: %v", err)
	}
	if routes != 3 || m.sequence.Pos() != 0 || m.sequence.Stats().Tokens != 0 {
		t.Errorf("%d layers ran, the sequence stands at %d and counted %d tokens", routes, m.sequence.Pos(), m.sequence.Stats().Tokens)
	}
	if _, err := m.sequence.Prefill(context.Background(), tokens, nil); err != nil {
		t.Errorf("the next chunk: %v", err)
	}
}

// recorded is a model on a device that executes nothing.
type recorded struct {
	device   *record.Device
	engine   *qwen4exp.Engine
	sequence *qwen4exp.Sequence
	room     int64 // the working set that the device recommends; 0: its own
}

// bounded is a device that recommends what the test says.
type bounded struct {
	*record.Device
	m *recorded
}

func (b bounded) Properties() metal.Properties {
	p := b.Device.Properties()
	p.WorkingSetBytes = cmp.Or(b.m.room, p.WorkingSetBytes)
	return p
}

func openRecorded(t *testing.T, dir string, dispatch func(record.Dispatch), o ...qwen4exp.Options) *recorded {
	t.Helper()
	m := &recorded{device: record.New(record.Options{Dispatch: dispatch})}
	c, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := gpu.New(bounded{m.device, m}, gpu.Options{Mapped: c.Mapped()})
	if err != nil {
		t.Fatal(err)
	}
	if m.engine, err = qwen4exp.Open(c, b, append(o, qwen4exp.Options{})[0]); err != nil {
		t.Fatal(err)
	}
	if m.sequence, err = m.engine.Sequence(400); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.sequence.Close(), m.engine.Close(), b.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		if c := m.device.Counts(); c.BufferBytes != 0 || c.Buffers != 0 {
			t.Errorf("%d bytes in %d buffers are left on the device", c.BufferBytes, c.Buffers)
		}
	})
	return m
}

// prefillCounts is what one chunk asks of a device over the first n layers of a model.
func prefillCounts(t *testing.T, dir string, n, rows int) record.Counts {
	t.Helper()
	m := openRecorded(t, dir, playRoute(1))
	if err := m.sequence.Observe(qwen4exp.Debug{Layers: n}); err != nil {
		t.Fatal(err)
	}
	m.device.Reset()
	if _, err := m.sequence.Prefill(context.Background(), make([]int32, rows), nil); err != nil {
		t.Fatal(err)
	}
	return m.device.Counts()
}
