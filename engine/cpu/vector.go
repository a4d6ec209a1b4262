package cpu

//go:generate go run ./gen -out kernels_amd64.s -stubs kernels_amd64.go -pkg cpu

// vector names a set of kernels. All sets give the same bits: they differ in how many sums run side by side.
type vector uint8

const (
	plain  vector = iota // Go
	avx                  // 256-bit registers, for sums alone
	avx2                 // the same with integers, fused multiply-add and halves
	avx512               // 512-bit registers
)

func (v vector) String() string { return [...]string{"plain", "avx", "avx2", "avx512"}[v] }

// lanes is how many outputs a panel holds side by side.
const lanes = 32

// blockRows is the most rows of x that one kernel call takes.
const blockRows = 8

// runPanels computes 32 outputs at a time: their rows of W are decoded, transposed so that the weights of one input
// stand side by side, and meet all rows of x before the next 32.
func (p product) runPanels(s *scratch) {
	in := (p.w.In + 15) &^ 15 // rows are padded to whole registers; the padding is never summed
	rows, panel := floats(&s.panel, lanes*in), floats(&s.columns, lanes*in)
	for o := p.from; o < p.to; o += lanes {
		n := min(lanes, p.to-o)
		for j := range n {
			s.vector.decodeRow(rows[j*in:j*in+p.w.In], p.w, o+j)
		}
		s.vector.transpose(panel, rows, in)
		p.panelColumns(s.vector, panel, p.at+o-p.from, n)
	}
}

// panelColumns computes n columns of y from col on.
func (p *product) panelColumns(v vector, panel []float32, col, n int) {
	var c [blockRows * lanes]float32
	var xs [blockRows]*float32
	for i := 0; i < p.x.n; {
		rows := min(v.rows(), p.x.n-i)
		for rows&(rows-1) != 0 { // kernels take 1, 2, 4 or 8
			rows &= rows - 1
		}
		for r := range rows {
			xs[r] = &p.x.at(i + r)[0]
		}
		v.dots(&c, &xs, panel, p.w.In, rows)
		for r := range rows {
			copy(p.y.at(i + r)[col:col+n], c[r*lanes:])
		}
		i += rows
	}
}

// sigmoid: x = gain * sigmoid(x * scale).
func (v vector) sigmoid(x []float32, scale, gain float32) {
	for done := v.sigmoidWide(x, scale, gain); done < len(x); done++ {
		x[done] = gain * sigmoid(float32(x[done]*scale))
	}
}

// silu: x = silu(x * scale).
func (v vector) silu(x []float32, scale float32) {
	for done := v.siluWide(x, scale); done < len(x); done++ {
		x[done] = silu(float32(x[done] * scale))
	}
}

// swiGLU: y = silu(gate) * up.
func (v vector) swiGLU(y, gate, up []float32) {
	for done := v.swiGLUWide(y, gate, up); done < len(y); done++ {
		y[done] = float32(silu(gate[done]) * up[done])
	}
}

// expBelow: x = exp(x - top), none of x above top.
func (v vector) expBelow(x []float32, top float32) {
	for done := v.expBelowWide(x, top); done < len(x); done++ {
		x[done] = exp32(x[done] - top)
	}
}

// addScaled: y += w * x.
func (v vector) addScaled(y, x []float32, w float32) {
	done := v.addScaledWide(y, x, w)
	y, x = y[done:], x[done:]
	for i := range y {
		y[i] += float32(w * x[i])
	}
}

// addProduct: y += u * z.
func (v vector) addProduct(y, u, z []float32) {
	done := v.addProductWide(y, u, z)
	y, u, z = y[done:], u[done:], z[done:]
	for i := range y {
		y[i] += float32(u[i] * z[i])
	}
}

// normScale: y = (x * r) * scale.
func (v vector) normScale(y, x, scale []float32, r float32) {
	for done := v.normScaleWide(y, x, scale, r); done < len(y); done++ {
		y[done] = float32(float32(x[done]*r) * scale[done])
	}
}
