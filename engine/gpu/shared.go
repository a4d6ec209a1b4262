package gpu

import (
	"lector/engine/ops"
	"lector/metal"
	"lector/shaders"
)

// sharedPart is the shared expert on the device.
type sharedPart struct {
	gate, up, down stored
	score          region
	inner          int
}

func (e *encoding) sharedPart(s *ops.SharedExpert) *sharedPart {
	return &sharedPart{gate: e.matrix(&s.GateBy), up: e.matrix(&s.UpBy), down: e.matrix(&s.Down), score: at(s.Score), inner: s.Down.In}
}

// like says that the shared expert is stored as the others are, so that one dispatch takes them all.
func (s *sharedPart) like(all *residentExperts, inner int) bool {
	return s.inner == inner && s.alike() && s.gate.constants == all.parts[gate].constants && s.down.constants == all.parts[down].constants
}

// alike says that its gate and up are stored alike.
func (s *sharedPart) alike() bool { return s.gate.constants == s.up.constants }

// bindInside binds gate and up for moe_few_inside.
func bindInside(buffers []region, gate, up *stored) {
	buffers[shaders.ExpertDataShared], buffers[shaders.ExpertScalesShared], buffers[shaders.ExpertBiasesShared] = gate.data, gate.scales, gate.biases
	buffers[shaders.ExpertDataSharedUp], buffers[shaders.ExpertScalesSharedUp], buffers[shaders.ExpertBiasesSharedUp] = up.data, up.scales, up.biases
}

// addShared adds the shared expert by itself, by the kernels that take it beside the others.
func (b *Backend) addShared(y, x ops.Tensor, s ops.SharedExpert) {
	e := b.begin()
	part := e.sharedPart(&s)
	if !part.alike() {
		e.end()
		b.Linear(s.Gate, x, s.GateBy)
		b.Linear(s.Up, x, s.UpBy)
		b.SwiGLU(s.Gate, s.Gate, s.Up)
		e = b.begin()
	} else {
		e.insideOfShared(s.Gate, x, part)
	}
	defer e.end()
	none := part.score // never read: there are no other experts
	dispatch(e, moeFewSum, shaders.ExpertFewParams{Inputs: uint32(part.inner), Outputs: uint32(y.Cols), Shared: 1, Onto: 1}, launch{
		buffers: []region{
			shaders.ExpertY: at(y), shaders.ExpertX: at(s.Gate), shaders.ExpertIds: none, shaders.ExpertTable: none,
			shaders.ExpertData: part.down.data, shaders.ExpertScales: part.down.scales, shaders.ExpertBiases: part.down.biases, shaders.ExpertWeight: none,
			shaders.ExpertScore: part.score, shaders.ExpertDataShared: part.down.data, shaders.ExpertScalesShared: part.down.scales, shaders.ExpertBiasesShared: part.down.biases,
		},
		constants: part.down.constants,
		groups:    metal.Size{X: vectorTiles(y.Cols, part.inner, simdWidth, shaders.FewDown), Y: y.Rows, Z: 1}, threads: shaders.FewSimds * simdWidth,
	})
}

// insideOfShared computes the activations of the shared expert alone.
func (e *encoding) insideOfShared(y, x ops.Tensor, s *sharedPart) {
	none := s.score
	buffers := make([]region, shaders.ExpertBiasesSharedUp+1)
	buffers[shaders.ExpertY], buffers[shaders.ExpertX], buffers[shaders.ExpertRows], buffers[shaders.ExpertIds] = at(y), at(x), none, none
	buffers[shaders.ExpertTable], buffers[shaders.ExpertData], buffers[shaders.ExpertScales], buffers[shaders.ExpertBiases] = none, s.gate.data, s.gate.scales, s.gate.biases
	buffers[shaders.ExpertTableUp], buffers[shaders.ExpertDataUp], buffers[shaders.ExpertScalesUp], buffers[shaders.ExpertBiasesUp] = none, s.up.data, s.up.scales, s.up.biases
	bindInside(buffers, &s.gate, &s.up)
	dispatch(e, moeFewInside, shaders.ExpertFewParams{Inputs: uint32(x.Cols), Outputs: uint32(s.inner)}, launch{
		buffers: buffers, constants: s.gate.constants,
		groups: metal.Size{X: vectorTiles(s.inner, x.Cols, shaders.BlockThreads, shaders.FewPairs), Y: x.Rows, Z: 1}, threads: shaders.BlockThreads,
	})
}
