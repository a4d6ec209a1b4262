package bench

import "lector/engine"

// source draws numbers from a seed: the same on every machine (splitmix64).
type source struct{ state uint64 }

func newSource(seed uint64) *source { return &source{seed} }

func (s *source) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	v := s.state
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// floats fills xs with values spread evenly over (-scale, scale).
func (s *source) floats(xs []float32, scale float32) {
	for i := range xs {
		xs[i] = scale * s.value()
	}
}

// value is in [-1, 1).
func (s *source) value() float32 { return float32(int32(s.next()>>32)) / (1 << 31) }

// token is below the vocabulary.
func (s *source) token(vocabulary int) engine.Token {
	return engine.Token(s.next() >> 33 % uint64(vocabulary))
}

// RandomTokens draws n tokens from a seed: a longer draw begins like a shorter one.
func RandomTokens(seed uint64, n, vocabulary int) []engine.Token {
	s, out := newSource(seed), make([]engine.Token, n)
	for i := range out {
		out[i] = s.token(vocabulary)
	}
	return out
}
