package qwen4exp

import (
	"fmt"
	"math"
	"slices"

	"lector/engine"
)

// masked is the logit of an id that no token has: below every finite logit that a network makes.
const masked = -math.MaxFloat32

// argmax is the greedy token; ties go to the lower id.
func argmax(logits []float32) engine.Token {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return engine.Token(best)
}

// top lists the n largest logits, best first, ties to the lower id.
func top(logits []float32, n int) []engine.TopLogit {
	var out []engine.TopLogit
	for id, v := range logits {
		if v == masked || len(out) == n && v <= out[n-1].Logit {
			continue
		}
		at := len(out)
		for at > 0 && v > out[at-1].Logit {
			at--
		}
		out = slices.Insert(out, at, engine.TopLogit{ID: engine.Token(id), Logit: v})
		out = out[:min(len(out), n)]
	}
	return out
}

// checkFinite refuses numbers that would go on as silent nonsense.
func checkFinite(xs []float32, what string, at int) error {
	for i, x := range xs {
		if math.Float32bits(x)&0x7f800000 == 0x7f800000 {
			return fmt.Errorf("%w: %s %d hold %v at %d: the weights or the state are damaged", engine.ErrNumeric, what, at, x, i)
		}
	}
	return nil
}
