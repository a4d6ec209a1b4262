package synth

// InShards cuts files shorter than usual.
func (o Options) InShards(bytes int64) Options {
	o.shardBytes = bytes
	return o
}

// Draw gives the first numbers of a stream as bf16.
func Draw(seed uint64, name string, n int) []byte {
	v := values{stream: streamOf(seed, name), kind: map[string]kind{"normal": normal, "around": around, "decays": decays}[name], scale: 0.2}
	if name == "around" {
		v.mean = 1
	}
	out := make([]byte, 2*n)
	v.fill(out, 0)
	return out
}

// Logarithm opens the logarithm.
func Logarithm(x float64) float64 { return logarithm(x) }
