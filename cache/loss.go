package cache

import (
	"fmt"
	"math"
	"strconv"
)

// Loss is what rounding to how a region is held took from what was computed, measured where it was rounded: a relative
// L2 over the whole region as it stands. It is a pure function of the producer and the tokens, as the region is.
type Loss struct {
	Region string  `json:"region"`
	L2     float32 `json:"l2"`
}

// MarshalJSON writes the number as the shortest decimal that reads back as the same float32, as a logit's is.
func (l Loss) MarshalJSON() ([]byte, error) {
	if f := float64(l.L2); math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("loss of region %s is %v, not a finite number", l.Region, l.L2)
	}
	b := append([]byte(`{"region":`), strconv.Quote(l.Region)...) // a region's name has nothing to escape
	b = append(b, `,"l2":`...)
	b = strconv.AppendFloat(b, float64(l.L2), 'g', -1, 32)
	return append(b, '}'), nil
}

// lossesOf lists the regions that were rounded, in order; nil where none was.
func lossesOf(regions []Region) []Loss {
	var out []Loss
	for _, r := range regions {
		if r.Loss != 0 {
			out = append(out, Loss{r.Name, r.Loss})
		}
	}
	return out
}

// checkLosses says whether each is of a region of the layout, in its order, and above zero.
func (l Layout) checkLosses(losses []Loss) error {
	at := 0
	for _, loss := range losses {
		for at < len(l) && l[at].Name != loss.Region {
			at++
		}
		if at == len(l) {
			return fmt.Errorf("loss of region %.140q, which the layout does not have there", loss.Region)
		}
		at++
		if f := float64(loss.L2); !(f > 0) || math.IsInf(f, 0) {
			return fmt.Errorf("loss of region %s is %v, not a number above zero", loss.Region, loss.L2)
		}
	}
	return nil
}
