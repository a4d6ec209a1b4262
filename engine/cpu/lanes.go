package cpu

import "lector/engine/cpu/fma"

// lanes16 are the sums of the class cpu-f32-blocked: element i goes to lane i mod 16.
type lanes16 [16]float64

// total adds the upper half of the lanes to the lower, again and again.
func (l *lanes16) total() float64 {
	for n := len(l) / 2; n > 0; n /= 2 {
		for i := range n {
			l[i] += l[i+n]
		}
	}
	return l[0]
}

// sumLanes is the sum of x[i] y[i], in lanes; the float64 product of two float32 is exact.
func (v vector) sumLanes(x, y []float32) float64 {
	var l lanes16
	for i := v.dotsWide(x, y, &l); i < len(x); i++ {
		l[i%len(l)] += float64(float64(x[i]) * float64(y[i]))
	}
	return l.total()
}

// softmax turns x into e^(x - max) and returns their float64 sum, in the order of the class.
func (b *Backend) softmax(x []float32) float64 {
	if b.fused() {
		return b.vector.softmaxLanes(x, 1)
	}
	return b.vector.softmax(x)
}

// softmaxLanes turns x into e^(x scale - max) and returns their sum, in lanes. scale is positive.
func (v vector) softmaxLanes(x []float32, scale float32) float64 {
	top := float32(v.largest(x) * scale) // rounding keeps order
	var l lanes16
	for i := v.softmaxWide(x, scale, top, &l); i < len(x); i++ {
		x[i] = exp32(float32(x[i]*scale) - top)
		l[i%len(l)] += float64(x[i])
	}
	return l.total()
}

// largest is the largest of x.
func (v vector) largest(x []float32) float32 {
	var lanes [16]float32
	for i := range lanes {
		lanes[i] = x[0]
	}
	done := v.largestWide(x, &lanes)
	top := lanes[0]
	for _, f := range lanes {
		top = max(top, f)
	}
	for _, f := range x[done:] {
		top = max(top, f)
	}
	return top
}

// sumPositives: y = scale times the sum over the first heads rows of x, ascending from zero, of what is not negative.
func (v vector) sumPositives(y []float32, x fma.Rows, heads int, scale float32) {
	for i := v.sumPositivesWide(y, x, heads, scale); i < len(y); i++ {
		sum := float32(0)
		for h := range heads {
			sum += max(x.Data[h*x.Step+i], 0)
		}
		y[i] = sum * scale
	}
}
