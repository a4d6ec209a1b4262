package enginetest

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"lector/engine"
)

// core is the fixed state after some tokens: all that the next numbers depend on.
type core struct {
	digest   [32]byte   // rolling digest of the tokens
	decay    [8]float32 // a recurrence with a memory of its own, as a real recurrent layer has
	residual [8]float32 // what the last row left; the logits are made from it
}

func newCore(seed string) core {
	return core{digest: sha256.Sum256([]byte("toy state\x00" + seed))}
}

// after is the state once id is consumed as well.
func (c core) after(id engine.Token) core {
	var in [36]byte
	copy(in[:], c.digest[:])
	binary.LittleEndian.PutUint32(in[32:], uint32(id))
	n := core{digest: sha256.Sum256(in[:])}
	for i := range n.decay {
		n.decay[i] = float32(c.decay[i]*0.5) + value(n.digest, i)
		n.residual[i] = value(n.digest, 8+i)
	}
	return n
}

// value is the i-th of sixteen finite numbers in [-32, 32) of a digest.
func value(d [32]byte, i int) float32 {
	return float32(int16(binary.LittleEndian.Uint16(d[2*i:]))) / 1024
}

// headRow is the draft head's row of a token, which needs the token after it.
func (c core) headRow(next engine.Token) [2]float32 {
	d := c.after(^next).digest
	return [2]float32{value(d, 0), value(d, 1)}
}

// logits follow from the residual and the recurrence alone, so that a restored state shows in them. Ids that
// read well are favoured, so that generated text is legible.
func (c core) logits(vocabulary int) []float32 {
	h := uint64(14695981039346656037)
	for _, v := range append(c.decay[:], c.residual[:]...) {
		h = scramble(h ^ uint64(math.Float32bits(v)))
	}
	out := make([]float32, vocabulary)
	for id := range out {
		out[id] = float32(scramble(h+uint64(id))>>44) / (1 << 16)
		if legible(engine.Token(id)) {
			out[id] += 16
		}
	}
	return out
}

func (c core) greedy(vocabulary int) engine.Token { return argmax(c.logits(vocabulary)) }

// guess is the head's draft of the token after next: right about two times of three.
func (c core) guess(next engine.Token, vocabulary int) engine.Token {
	n := c.after(next)
	right := n.greedy(vocabulary)
	if n.digest[0]%3 == 0 {
		return (right + 1) % engine.Token(vocabulary)
	}
	return right
}

func (c core) probe(vocabulary int, head bool) engine.Probe {
	logits := c.logits(vocabulary)
	p := engine.Probe{Next: argmax(logits), Draft: engine.NoToken}
	for range min(engine.ProbeTop, vocabulary) {
		id := argmax(logits)
		p.Top = append(p.Top, engine.TopLogit{ID: id, Logit: logits[id]})
		logits[id] = float32(math.Inf(-1))
	}
	if head {
		p.Draft = c.guess(p.Next, vocabulary)
	}
	return p
}

// argmax gives ties to the lower id.
func argmax(logits []float32) engine.Token {
	best := 0
	for id, v := range logits {
		if v > logits[best] {
			best = id
		}
	}
	return engine.Token(best)
}

// scramble is the finaliser of splitmix64: every input bit reaches every output bit.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
