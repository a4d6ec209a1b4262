package gpu_test

import (
	"context"
	"encoding/binary"
	"flag"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lector/engine"
	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/ops"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
)

const fixtures = "../../tests/fixtures"

var long = flag.Bool("long", false, "run what is too long for every run, instead of the rest: the long fixtures, and all checks of the others")

// fixtureCase is a fixture, and how its prompt is cut into chunks.
type fixtureCase struct {
	name  string
	chunk int
	long  bool
}

func fixtureCases() []fixtureCase {
	return []fixtureCase{
		{"tiny", 64, false}, {"odd", 50, false}, {"tiny-mlx-folded", 150, false}, {"tiny-mlx-plain", 64, false},
		{"tiny-long", 256, true}, {"nano-text", 256, true},
	}
}

// eachFixture runs a test on every fixture that this run is for. The long ones take the software device a minute
// together: the soft step of tests/run runs them, and not the short ones again, which the unit step has run.
func eachFixture(t *testing.T, test func(t *testing.T, m *model)) {
	for _, c := range fixtureCases() {
		if c.long != *long {
			continue
		}
		t.Run(c.name, func(t *testing.T) { test(t, openModel(t, c)) })
	}
}

// model is a checkpoint with the fixture that ran on it.
type model struct {
	fixtureCase
	opt        qwen4exp.Options
	checkpoint *weights.Checkpoint
	fixture    *oracle.Fixture
	logits     []float32 // [rows from logitsFrom on, V], the reference's
	from       int
}

func openModel(t *testing.T, c fixtureCase) *model {
	t.Helper()
	dir := filepath.Join(fixtures, c.name)
	switch c.name {
	case "tiny-long":
		dir = filepath.Join(fixtures, "tiny")
	case "nano-text":
		dir = "../nano"
	}
	m := &model{fixtureCase: c}
	var err error
	if m.checkpoint, err = weights.Open(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.checkpoint.Close() })
	path := filepath.Join(fixtures, c.name, "oracle.safetensors")
	if m.fixture, err = oracle.Load(path); err != nil {
		t.Fatal(err)
	}
	tensors, err := weights.ReadTensors(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		if x.Name == "logits" {
			m.logits = decodeFloats(x.Data)
			m.from = len(m.fixture.Tokens) - x.Shape[len(x.Shape)-2]
		}
	}
	return m
}

func decodeFloats(data []byte) []float32 {
	v := make([]float32, len(data)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return v
}

func (m *model) open(t *testing.T, be ops.Backend, norm qwen4exp.HiddenNorm) *qwen4exp.Engine {
	t.Helper()
	m.opt.HiddenNorm = norm
	e, err := qwen4exp.Open(m.checkpoint, be, m.opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// result is what a run of the prompt leaves.
type result struct {
	logits  []float32 // of the rows that the fixture has, [rows, V]
	regions []engine.Region
}

// run prefills the prompt on a backend and copies what it leaves.
func (m *model) run(t *testing.T, be ops.Backend) (r result) {
	t.Helper()
	e := m.open(t, be, qwen4exp.Grouped)
	defer e.Close()
	tokens := m.fixture.Tokens
	s, err := e.Sequence(len(tokens))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Observe(qwen4exp.Debug{Logits: true}); err != nil {
		t.Fatal(err)
	}
	for from := 0; from < len(tokens); from += m.chunk {
		to := min(from+m.chunk, len(tokens))
		if _, err := s.Prefill(context.Background(), tokens[from:to], nil); err != nil {
			t.Fatal(err)
		}
		for p := max(from, m.from); p < to; p++ {
			row, err := s.LogitsAt(p)
			if err != nil {
				t.Fatal(err)
			}
			r.logits = append(r.logits, row...)
		}
	}
	regions, err := s.Regions()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range regions {
		x.Data = slices.Clone(x.Data)
		r.regions = append(r.regions, x)
	}
	return r
}

// relative is the relative L2 distance of got from want; infinite for a NaN.
func relative(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	off, all := 0.0, 0.0
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		off += d * d
		all += float64(w) * float64(w)
	}
	if math.IsNaN(off) {
		return math.Inf(1)
	}
	return math.Sqrt(off / max(all, 1e-30))
}

// In float32 the network has the fixture's logits.
func TestNetworkFloat32(t *testing.T) {
	eachFixture(t, func(t *testing.T, m *model) {
		b := open(t, gpu.Options{Float32: true})
		d := relative(m.run(t, b).logits, m.logits)
		t.Logf("logits: relative L2 %.1e", d)
		if !(d < 1e-4) {
			t.Errorf("logits are off by %.1e of their length, want under 1e-4", d)
		}
	})
}

// In float32 the network meets the fixture as the CPU does, choices, states and greedy text included.
func TestNetworkMeetsTheFixture(t *testing.T) {
	for _, c := range fixtureCases() {
		if *long == (c.name == "tiny") {
			continue // one in every run, all the others in the long one
		}
		t.Run(c.name, func(t *testing.T) {
			m, b := openModel(t, c), open(t, gpu.Options{Float32: true})
			report, err := m.fixture.Check(context.Background(), func(norm qwen4exp.HiddenNorm) (*qwen4exp.Engine, error) {
				return qwen4exp.Open(m.checkpoint, b, qwen4exp.Options{HiddenNorm: norm})
			}, m.chunk)
			if err != nil {
				t.Fatal(err)
			}
			if !report.OK() {
				var text strings.Builder
				report.Print(&text)
				t.Error("the fixture is not met:\n" + text.String())
			}
		})
	}
}

// Staged in half and choosing for itself, the network differs from the CPU's choices only where these were nearly made
// otherwise, and has every greedy token that the reference is sure of. Where no choice differs the logits are near.
func TestNetworkHalf(t *testing.T) {
	eachFixture(t, func(t *testing.T, m *model) {
		c, g := &recorder{Backend: cpu.New(cpu.Options{}), t: t}, &recorder{Backend: open(t, gpu.Options{}), t: t}
		m.run(t, c)
		got := m.run(t, g).logits
		flips, margin := differences(t, c.choices, g.choices)
		d := relative(got, m.logits)
		t.Logf("logits: relative L2 %.1e; %d choices differ, at margins of at most %.1e", d, flips, margin)
		if margin >= 1e-2 {
			t.Errorf("a choice differs at a margin of %.1e, want under 1e-2", margin)
		}
		if limit := 1e-2 * float64(1+min(flips, 1)); !(d < limit) {
			t.Errorf("logits are off by %.1e of their length, want under %.0e", d, limit)
		}
		width := len(m.logits) / (len(m.fixture.Tokens) - m.from)
		for r := range len(m.logits) / width {
			m.sameGreedy(t, m.from+r, got[r*width:][:width], m.logits[r*width:][:width])
		}
	})
}

// sameGreedy demands the reference's greedy token where its lead is more than twice the largest error of the row.
func (m *model) sameGreedy(t *testing.T, p int, got, want []float32) {
	t.Helper()
	first, second, off := 0, -1, 0.0
	for i, v := range want {
		off = max(off, math.Abs(float64(got[i]-v)))
		if v > want[first] {
			first = i
		}
	}
	for i, v := range want {
		if i != first && (second < 0 || v > want[second]) {
			second = i
		}
	}
	best := 0
	for i, v := range got {
		if v > got[best] {
			best = i
		}
	}
	if float64(want[first]-want[second]) > 2*off && best != first {
		t.Errorf("row %d: greedy token %d, the reference has %d by %g with an error of %g", p, best, first, want[first]-want[second], off)
	}
}

// With the choices of the CPU forced on it, the half-staged network is near it in the logits and in every state: what is
// left is rounding.
func TestNetworkHalfForced(t *testing.T) {
	eachFixture(t, func(t *testing.T, m *model) {
		c := &recorder{Backend: cpu.New(cpu.Options{}), t: t}
		want := m.run(t, c)
		f := &forced{Backend: open(t, gpu.Options{}), t: t, choices: c.choices}
		got := m.run(t, f)
		if len(f.choices) > 0 {
			t.Errorf("%d recorded choices are left over", len(f.choices))
		}
		d := relative(got.logits, want.logits)
		worstName, worstOff := "", 0.0
		for i, r := range want.regions {
			if r.DType != "f32" || len(r.Data) == 0 {
				continue
			}
			if off := relative(decodeFloats(got.regions[i].Data), decodeFloats(r.Data)); off > worstOff {
				worstName, worstOff = r.Name, off
			}
		}
		t.Logf("logits: relative L2 %.1e; states: at most %.1e, in %s", d, worstOff, worstName)
		if !(d < 3e-3) {
			t.Errorf("logits are off by %.1e of their length, want under 3e-3", d)
		}
		if !(worstOff < 3e-3) {
			t.Errorf("%s is off by %.1e of its length, want under 3e-3", worstName, worstOff)
		}
	})
}

// A state made on the device goes on on the CPU, and one of the CPU on the device: what follows is as near as if nothing
// had changed hands.
func TestStateChangesHands(t *testing.T) {
	m := openModel(t, fixtureCase{"tiny", 64, false})
	cut := 64
	c, g := cells{cpu.New(cpu.Options{}), cut}, cells{open(t, gpu.Options{}), cut}
	for _, m.opt = range []qwen4exp.Options{{}, {KV: qwen4exp.KVF16}, {KV: qwen4exp.KVQ8}, {State: qwen4exp.StateBF16}} {
		want := m.after(t, c, m.export(t, c, cut), cut)
		for _, way := range []struct {
			name     string
			from, to ops.Backend
		}{{"device to CPU", g, c}, {"CPU to device", c, g}} {
			if d := relative(m.after(t, way.to, m.export(t, way.from, cut), cut), want); !(d < 1e-2) {
				t.Errorf("%s, %s: logits are off by %.1e of their length, want under 1e-2", m.opt.Codec(), way.name, d)
			} else {
				t.Logf("%s, %s: logits: relative L2 %.1e", m.opt.Codec(), way.name, d)
			}
		}
	}
}

// cells is a backend with a grid of its own, so that a short prompt ends a cell.
type cells struct {
	ops.Backend
	grid int
}

func (c cells) Grid() int { return c.grid }

// export is the state after the first n tokens.
func (m *model) export(t *testing.T, be ops.Backend, n int) (all []engine.Region) {
	t.Helper()
	e := m.open(t, be, qwen4exp.Grouped)
	defer e.Close()
	s, err := e.Sequence(n)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Prefill(context.Background(), m.fixture.Tokens[:n], nil); err != nil {
		t.Fatal(err)
	}
	regions, err := s.Regions()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range regions {
		r.Data = slices.Clone(r.Data)
		all = append(all, r)
	}
	return all
}

// after restores the state at n and returns the logits of the tokens that follow.
func (m *model) after(t *testing.T, be ops.Backend, regions []engine.Region, n int) (logits []float32) {
	t.Helper()
	e := m.open(t, be, qwen4exp.Grouped)
	defer e.Close()
	tokens := m.fixture.Tokens
	s, err := e.Sequence(len(tokens))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.Restore(engine.Pos(n))
	if err != nil {
		t.Fatal(err)
	}
	for i, to := range r.Regions() {
		if to.Name != regions[i].Name || copy(to.Data, regions[i].Data) != len(to.Data) {
			t.Fatalf("region %s does not fit %s", regions[i].Name, to.Name)
		}
	}
	if err := r.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Observe(qwen4exp.Debug{Logits: true}); err != nil {
		t.Fatal(err)
	}
	to := min(n+40, len(tokens))
	if _, err := s.Prefill(context.Background(), tokens[n:to], nil); err != nil {
		t.Fatal(err)
	}
	for p := n; p < to; p++ {
		row, err := s.LogitsAt(p)
		if err != nil {
			t.Fatal(err)
		}
		logits = append(logits, row...)
	}
	return logits
}

// Prefill leaves the state that decoding the same tokens one by one leaves.
func TestPrefillIsDecode(t *testing.T) {
	m := openModel(t, fixtureCase{"tiny", 48, false})
	b := open(t, gpu.Options{Float32: true})
	m.fixture.Tokens = m.fixture.Tokens[:48]
	m.from = len(m.fixture.Tokens)
	whole := m.run(t, b)
	m.chunk = 1
	for i, r := range m.run(t, b).regions {
		if r.DType != "f32" || len(r.Data) == 0 {
			continue
		}
		if off := relative(decodeFloats(whole.regions[i].Data), decodeFloats(r.Data)); !(off < 1e-4) {
			t.Errorf("%s: prefill and single steps differ by %.1e of its length", r.Name, off)
		}
	}
}
