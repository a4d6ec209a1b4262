package worker

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lector/engine"
	"lector/queue"
)

// sampler chooses tokens from logits. The choice at a position is a pure function of the settings, the branch, the
// position and the logits, so that a second attempt, and any number of drafts, give the same text.
type sampler struct {
	queue.Sampling
	branch     uint32
	vocabulary int // ids from here on have no token and are never chosen
}

func newSampler(s queue.Sampling, vocabulary int) (sampler, error) {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return sampler{}, fmt.Errorf("temperature %v: it must be 0 or more: %w", s.Temperature, ErrInput)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return sampler{}, fmt.Errorf("top-p %v: it must be from 0 (off) to 1: %w", s.TopP, ErrInput)
	case s.TopK < 0:
		return sampler{}, fmt.Errorf("top-k %d: it must be 0 (off) or more: %w", s.TopK, ErrInput)
	}
	return sampler{Sampling: s, vocabulary: vocabulary}, nil
}

// candidate is an id that may be chosen; its weight is relative to that of the largest logit.
type candidate struct {
	id     engine.Token
	logit  float32
	weight float64
}

// choose is an engine.Choose.
func (s sampler) choose(pos engine.Pos, logits []float32) engine.Token {
	logits = logits[:min(s.vocabulary, len(logits))]
	best := largest(logits)
	if s.greedy() {
		return best
	}
	kept := s.candidates(logits, logits[best])
	total := 0.0
	for _, c := range kept {
		total += c.weight
	}
	kept, total = nucleus(kept, total, s.TopP)
	aim := float64(unit(s.Seed, uint64(pos), s.branch) * total)
	sum := 0.0
	for _, c := range kept {
		if sum += c.weight; aim < sum {
			return c.id
		}
	}
	return kept[len(kept)-1].id
}

// chooser is choose for an engine of so many ids: nil, which spares the logits' way to the host, where the greedy one of all
// is wanted.
func (s sampler) chooser(ids int) engine.Choose {
	if s.greedy() && s.vocabulary >= ids {
		return nil
	}
	return s.choose
}

func (s sampler) greedy() bool { return s.Temperature == 0 || s.TopK == 1 }

// negligible is the exponent below which an id is not considered: together, 2^18 such ids weigh less than 1e-12.
const negligible = -40

// candidates are the ids worth considering, best first, ties to the lower id: the top k, where k is set.
func (s sampler) candidates(logits []float32, best float32) []candidate {
	var out []candidate
	for id, l := range logits {
		x := float64(float64(l)-float64(best)) / s.Temperature
		if x >= negligible { // also drops what is not a number
			out = append(out, candidate{engine.Token(id), l, exp(x)})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int {
		if c := cmp.Compare(b.logit, a.logit); c != 0 {
			return c
		}
		return cmp.Compare(a.id, b.id)
	})
	if s.TopK > 0 && s.TopK < len(out) {
		out = out[:s.TopK]
	}
	return out
}

// nucleus keeps the fewest best candidates that hold the share p of the weight, and sums them. 0 and 1 keep all.
func nucleus(all []candidate, total, p float64) ([]candidate, float64) {
	if p == 0 || p == 1 {
		return all, total
	}
	want, sum := float64(p*total), 0.0
	for i, c := range all {
		if sum += c.weight; sum >= want {
			return all[:i+1], sum
		}
	}
	return all, total
}

// largest is the id of the largest logit, ties to the lower id.
func largest(logits []float32) engine.Token {
	best := 0
	for id, l := range logits {
		if l > logits[best] {
			best = id
		}
	}
	return engine.Token(best)
}

// exp is e^x for x in [-700, 0], the same bits on every machine: package math has assembly of its own on some, and
// the compiler fuses x*y+z on others unless every product is rounded by a conversion. The result is within 2 ulp.
func exp(x float64) float64 {
	const (
		log2e = 1.44269504088896338700e+00
		ln2Hi = 6.93147180369123816490e-01 // its last 33 bits are zero: k times it is exact
		ln2Lo = 1.90821492927058770002e-10
	)
	k := math.Floor(float64(x*log2e) + 0.5)
	r := float64(x-float64(k*ln2Hi)) - float64(k*ln2Lo) // |r| <= ln2/2
	// Taylor's series: the first term left out is r^14/14! < 5e-18.
	sum := 1.0
	for n := 13.0; n >= 1; n-- {
		sum = 1 + float64(float64(r*sum)/n)
	}
	return sum * math.Float64frombits(uint64(int64(k)+1023)<<52)
}

// unit is a number in [0, 1) with 53 random bits that depends on nothing but seed, counter and stream.
func unit(seed, counter uint64, stream uint32) float64 {
	r := philox([4]uint32{uint32(counter), uint32(counter >> 32), stream, 0}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(r[0])<<32|uint64(r[1]))>>11) / (1 << 53)
}

// philox is Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3": a counter and a key give
// four random words, without any state in between.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		a, b := uint64(ctr[0])*0xD2511F53, uint64(ctr[2])*0xCD9E8D57
		ctr = [4]uint32{uint32(b>>32) ^ ctr[1] ^ key[0], uint32(b), uint32(a>>32) ^ ctr[3] ^ key[1], uint32(a)}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return ctr
}
