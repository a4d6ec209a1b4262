package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"lector/engine/cpu"
	"lector/engine/ops"
)

// newDeltaCase is a scan of unit keys with gates as the model makes them; it returns outputs, then the state.
func newDeltaCase(src source, d ops.DeltaDims, rows int) opCase {
	c := 2*d.Hk*d.Dk + d.Hv*d.Dv
	qkv, s := src.normal(rows*c, 1), src.normal(d.Hv*d.Dk*d.Dv, 0.3)
	for r := range rows {
		for h := range 2 * d.Hk {
			head, sum := qkv[r*c+h*d.Dk:][:d.Dk], 0.0
			for _, v := range head {
				sum += float64(v) * float64(v)
			}
			for i := range head {
				head[i] /= float32(math.Sqrt(sum))
			}
		}
	}
	g, beta := make([]float32, rows*d.Hv), make([]float32, rows*d.Hv)
	for i := range g {
		g[i], beta[i] = 1-src.Float32()/4, src.Float32()
	}
	o, state := refDelta(qkv, g, beta, s, d, rows)
	return opCase{fmt.Sprint(d, rows), rows, func(b *cpu.Backend, cuts []int) []float32 {
		x, gs, betas, st := put(b, qkv, c), put(b, g, d.Hv), put(b, beta, d.Hv), put(b, s, d.Dk*d.Dv)
		out := put(b, garbage(rows*d.Hv*d.Dv), d.Hv*d.Dv)
		chunks(cuts, func(from, to int) {
			b.DeltaScan(out.Slice(from, to), x.Slice(from, to), gs.Slice(from, to), betas.Slice(from, to), st, d)
		})
		return append(append([]float32(nil), out.Floats()...), st.Floats()...)
	}, append(o, state...), 5e-6}
}

// refDelta is the definition, in float64.
func refDelta(qkv, g, beta, s []float32, d ops.DeltaDims, rows int) (o, state []float64) {
	state, o = wide(s), make([]float64, rows*d.Hv*d.Dv)
	c := 2*d.Hk*d.Dk + d.Hv*d.Dv
	for r := range rows {
		row := wide(qkv[r*c : (r+1)*c])
		for j := range d.Hv {
			hk := j / (d.Hv / d.Hk)
			q, k, v := row[hk*d.Dk:], row[(d.Hk+hk)*d.Dk:], row[2*d.Hk*d.Dk+j*d.Dv:]
			for col := range d.Dv {
				at := func(i int) *float64 { return &state[(j*d.Dk+i)*d.Dv+col] }
				read := 0.0
				for i := range d.Dk {
					*at(i) *= float64(g[r*d.Hv+j])
					read += *at(i) * k[i]
				}
				delta := float64(beta[r*d.Hv+j]) * (v[col] - read)
				for i := range d.Dk {
					*at(i) += k[i] * delta
					o[(r*d.Hv+j)*d.Dv+col] += *at(i) * q[i]
				}
			}
		}
	}
	return o, state
}

func TestDeltaScan(t *testing.T) {
	src := newSource(20)
	for _, s := range []struct {
		ops.DeltaDims
		rows int
	}{
		{ops.DeltaDims{Hk: 1, Hv: 1, Dk: 1, Dv: 1}, 3},
		{ops.DeltaDims{Hk: 2, Hv: 6, Dk: 7, Dv: 5}, 9},
		{ops.DeltaDims{Hk: 2, Hv: 4, Dk: 64, Dv: 64}, 20},
		{ops.DeltaDims{Hk: 1, Hv: 2, Dk: 128, Dv: 128}, 6},
		{ops.DeltaDims{Hk: 1, Hv: 3, Dk: 34, Dv: 70}, 5},
	} {
		check(t, newDeltaCase(src, s.DeltaDims, s.rows))
	}
}

func TestDeltaGates(t *testing.T) {
	src := newSource(21)
	const rows, hv = 7, 48
	a, bb := src.normal(rows*hv, 6), src.normal(rows*hv, 4)
	aLog, bias := src.normal(hv, 2), src.normal(hv, 3)
	want := make([]float64, 2*rows*hv)
	for i := range a {
		x := float64(a[i]) + float64(bias[i%hv])
		want[i] = math.Exp(-math.Exp(float64(aLog[i%hv])) * (max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))))
		want[rows*hv+i] = refSigmoid(float64(bb[i]))
	}
	check(t, opCase{"in place", rows, func(b *cpu.Backend, cuts []int) []float32 {
		g, beta := put(b, a, hv), put(b, bb, hv)
		chunks(cuts, func(from, to int) {
			gs, bs := g.Slice(from, to), beta.Slice(from, to)
			b.DeltaGates(gs, bs, gs, bs, aLog, bias)
		})
		return append(append([]float32(nil), g.Floats()...), beta.Floats()...)
	}, want, 2e-7})
}

func TestGatedNorm(t *testing.T) {
	src := newSource(22)
	for _, s := range [][3]int{{1, 1, 5}, {5, 6, 64}, {3, 2, 128}} {
		for _, silu := range []bool{false, true} {
			cols := s[1] * s[2]
			o, z, w := src.normal(s[0]*cols, 2), src.normal(s[0]*cols, 2), src.normal(s[2], 1)
			check(t, inPlace(fmt.Sprint(s, silu), o, cols, 3e-6, func(b *cpu.Backend, o ops.Tensor, first int) {
				b.GatedNorm(o, put(b, z, cols).Slice(first, first+o.Rows), w, 1e-6, silu)
			}, func(row []float64, r int) {
				for h := 0; h < cols; h += s[2] {
					refNorm(row[h:h+s[2]], w, 1e-6)
				}
				for c := range row {
					x := float64(z[r*cols+c])
					if silu {
						row[c] *= refSiLU(x)
					} else {
						row[c] *= refSigmoid(x)
					}
				}
			}))
		}
	}
}
