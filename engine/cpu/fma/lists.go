package fma

// ListAhead is how many numbers a list must have behind what is used: what they name is brought near, if it is there.
const ListAhead = half

// Listed are rows of floats wherever a list says: row i begins at Data[List[i]*Step].
type Listed struct {
	Data []float32
	Step int
	List []int32 // with ListAhead numbers behind what is used
}

// Lists says that this set has kernels for listed rows.
func (s Set) Lists() bool { return s == AVX512 || s == AVX2 }

// check panics unless n listed rows of k floats can be read.
func (l Listed) check(n, k int) {
	_ = l.List[:n+ListAhead]
	for _, i := range l.List[:n] {
		if i < 0 || int(i)*l.Step+k > len(l.Data) {
			panic("fma: a list names a row that is not there")
		}
	}
}

// TransposeListed is Transpose of n <= 32 listed rows of k floats, k a multiple of 16. It needs Lists.
func (s Set) TransposeListed(panel []float32, rows Listed, n, k int) {
	rows.check(n, k)
	_ = panel[:(k-1)*Lanes+(n+half-1)/half*half]
	for from := 0; from < n; from += half {
		list := rows.List[from:]
		if n-from < half { // a ragged end repeats a row
			var own [2 * half]int32
			for j := range own {
				own[j] = list[min(j, n-from-1)]
			}
			list = own[:]
		}
		s.transposeListed(Rows{panel[from:], Lanes}, rows, list, k)
	}
}

// DotsListed is Dots with listed rows of values: c[r, j] += x[r, i] * values[i, j], i ascending, fused, for t.Inputs rows and
// t.Columns columns, a multiple of 16. It needs Lists.
func (s Set) DotsListed(c, x Rows, values Listed, t Tile) {
	if t.Rows <= 0 || t.Inputs <= 0 {
		return
	}
	values.check(t.Inputs, t.Columns)
	_ = x.Data[(t.Rows-1)*x.Step+t.Inputs-1]
	_ = c.Data[(t.Rows-1)*c.Step+t.Columns-1]
	for r := 0; r < t.Rows; {
		n := min(4, t.Rows-r)
		if n == 3 {
			n = 2
		}
		for j := 0; j < t.Columns; {
			columns := s.halves(n) * half
			for columns > t.Columns-j {
				columns /= 2
			}
			at := values
			at.Data = values.Data[j:]
			s.dotsListed(c.from(r, j), x.from(r, 0), at, t.of(n, columns))
			j += columns
		}
		r += n
	}
}
