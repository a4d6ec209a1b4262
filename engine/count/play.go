package count

import (
	"context"
	"fmt"
	"math/rand/v2"
	"unsafe"

	"lector/engine/gpu"
	"lector/engine/ops"
	"lector/engine/stream"
	"lector/engine/weights"
	"lector/metal/record"
	"lector/shaders"
)

// Records are played in the release's 4-bit form.
const (
	recordBits  = 4
	recordGroup = 64
)

// played is the backend with two parts played: the device's choice of experts, and the storage that they come from.
type played struct {
	*gpu.Backend
	config *weights.Config
	seed   uint64
	draw   *rand.Rand
	order  []int32 // experts, shuffled a little further for every row

	shapes  recordShapes
	slots   ops.Slots
	last    []uint64 // by slot: ticket of its last user
	plan    *stream.Simulation
	tickets uint64 // given out by now
	offset  uint64 // of them, before begin
	pass    int    // over some rows: the trunk's, then the draft head's
	layer   int    // of the pass, to run its experts next
	unique  int64
	fault   error
}

func newPlayed(b *gpu.Backend, c *weights.Config, seed uint64) (*played, error) {
	p := &played{Backend: b, config: c, seed: seed, order: make([]int32, c.Experts)}
	p.shapes = recordShapes{layers: c.Layers + c.MTPLayers, experts: c.Experts, bytes: p.recordBytes()}
	var err error
	p.slots, err = b.AllocSlots(stream.RingSlots, p.shapes.bytes)
	p.last = make([]uint64, stream.RingSlots)
	p.begin()
	return p, err
}

// recordShapes implements stream.Shapes: all records are alike.
type recordShapes struct{ layers, experts, bytes int }

func (s recordShapes) Layers() int              { return s.layers }
func (s recordShapes) Experts(int) int          { return s.experts }
func (s recordShapes) ExpertBytes(int, int) int { return s.bytes }

// begin counts anew, over slots that hold nothing, and draws the same routing again.
func (p *played) begin() {
	p.plan, p.offset = stream.Simulate(p.shapes, stream.RingSlots, stream.RingSlots), p.tickets
	p.draw = rand.New(rand.NewPCG(p.seed, 1))
	for e := range p.order {
		p.order[e] = int32(e)
	}
	p.unique, p.fault, p.pass, p.layer = 0, nil, 0, 0
}

func (p *played) close() error {
	p.slots.Free()
	return p.Backend.Close()
}

// recordBytes is the length of a record in storage.
func (p *played) recordBytes() int {
	matrix := p.config.Hidden * p.config.ExpertInner
	return 3 * (matrix*recordBits/8 + 2*2*matrix/recordGroup)
}

// WorkBytes and Reserve count the outputs of stored records, which the model itself has in memory.
func (p *played) WorkBytes(w ops.Work) int {
	w.Experts.Stored = true
	return p.Backend.WorkBytes(w)
}

// Reserve implements ops.Scratch.
func (p *played) Reserve(w ops.Work) error {
	w.Experts.Stored = true
	return p.Backend.Reserve(w)
}

// play writes what moe_route would: k experts for every row.
func (p *played) play(d record.Dispatch) {
	if d.Kernel != "moe_route" {
		return
	}
	params := (*shaders.RouteParams)(unsafe.Pointer(unsafe.SliceData(d.Bindings[shaders.Params].Block)))
	out := d.Bindings[shaders.RouteExpert].Bytes()
	chosen := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(out))), int(params.Rows*params.Slots))
	for k := int(params.Slots); len(chosen) > 0; chosen = chosen[k:] {
		for i := range k {
			j := i + p.draw.IntN(len(p.order)-i)
			p.order[i], p.order[j] = p.order[j], p.order[i]
		}
		copy(chosen[:k], p.order)
	}
}

// Embed begins every pass.
func (p *played) Embed(y ops.Tensor, w ops.Matrix, ids []int32) {
	p.pass++
	p.Backend.Embed(y, w, ids)
}

// RunExperts takes the experts from storage.
func (p *played) RunExperts(y, x ops.Tensor, e ops.Experts, route ops.Route) ops.Usage {
	layer := p.config.Layers
	if p.pass == 1 {
		layer = p.layer
		p.layer++
	}
	e.Records = storage{p, layer}
	return p.Backend.RunExperts(y, x, e, route)
}

// storage implements ops.Records.
type storage struct {
	*played
	layer int
}

// Sweep implements ops.Records: the plan of a real one, and nothing is read.
func (s storage) Sweep(wants []ops.Want) ops.Sweep {
	items := s.plan.Sweep(s.layer, false, wants)
	for i := range items {
		items[i].Ticket += s.offset
		s.tickets = items[i].Ticket
		items[i].Record = s.record(s.slots.Mem[items[i].Slot])
		s.unique += int64(s.shapes.bytes)
	}
	return &sweep{played: s.played, items: items}
}

// record views a slot as a record.
func (p *played) record(slot []byte) ops.Expert {
	matrix := func(name string, out, in int) ops.Matrix {
		cut := func(n int) []byte {
			part := slot[:n:n]
			slot = slot[n:]
			return part
		}
		side := 2 * out * in / recordGroup
		return ops.Matrix{
			Name: name, Out: out, In: in, Format: ops.Affine, Bits: recordBits, Group: recordGroup, Side: ops.BF16,
			Data: cut(out * in * recordBits / 8), Scales: cut(side), Biases: cut(side),
		}
	}
	c := p.config
	return ops.Expert{
		Gate: matrix("gate", c.ExpertInner, c.Hidden), Up: matrix("up", c.ExpertInner, c.Hidden), Down: matrix("down", c.Hidden, c.ExpertInner),
	}
}

// sweep implements ops.Sweep. Every record is there at once.
type sweep struct {
	*played
	items []ops.Item
	read  int
}

// Items implements ops.Sweep.
func (s *sweep) Items() []ops.Item { return s.items }

// Wait implements ops.Sweep. It holds the backend to what a reader would wait for: by now the device, which is done
// with all that it was given, must be past the slot's last user.
func (s *sweep) Wait(i int) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what is not there now never comes
	for ; s.read <= i && s.fault == nil; s.read++ {
		item := &s.items[s.read]
		if err := s.slots.Done.Wait(ctx, s.last[item.Slot]); err != nil {
			s.fault = fmt.Errorf("record %d of a sweep goes into slot %d, whose record nobody is done with", s.read, item.Slot)
		}
		s.last[item.Slot] = item.Ticket
		s.slots.Fetched.Signal(item.Ticket)
	}
	return s.fault
}

// Done implements ops.Sweep: the device says it.
func (s *sweep) Done(int) {}

// End implements ops.Sweep.
func (s *sweep) End() error { return s.fault }
