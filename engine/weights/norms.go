package weights

import (
	"fmt"
	"slices"
	"strings"
)

// normReading says what a class of norms stores.
type normReading string

const (
	plain   normReading = "plain"   // the scale itself, by the network's definition
	centred normReading = "centred" // w, where the scale is 1 + w
	folded  normReading = "folded"  // 1 + w
)

// plainNorm is the one norm of the network that multiplies with its weight as it is.
const plainNorm = "linear_attn.norm"

// Means of a class up to here are those of w; from there on, of 1 + w. Trained weights stray from 0, so
// between them the mean does not decide.
const (
	centredMean = 0.4
	foldedMean  = 0.6
)

// Norm returns the vector that a norm multiplies with, in float32: 1+w where w is stored, else what is stored.
// The name is without ".weight".
func (c *Checkpoint) Norm(name string, n int) ([]float32, error) {
	s, err := c.vector(name, n)
	if err != nil {
		return nil, err
	}
	values, err := s.floats()
	if err != nil {
		return nil, err
	}
	reading, ok := c.norms[class(name)]
	if !ok {
		return nil, fmt.Errorf("tensor %s is no norm of the network", s)
	}
	if reading == centred {
		for i := range values {
			values[i]++
		}
	}
	return values, nil
}

// readNorms decides for each class of norms what it stores.
func (c *Checkpoint) readNorms(norms []*stored) error {
	classes := map[string][]*stored{}
	for _, s := range norms {
		classes[class(s.canonical)] = append(classes[class(s.canonical)], s)
	}
	if c.packed != nil {
		return c.packedNorms(sortedKeys(classes))
	}
	c.norms = map[string]normReading{}
	for _, name := range sortedKeys(classes) {
		if name == plainNorm {
			c.norms[name] = plain
			c.found("norm "+name, "plain: the stored value is the scale", "by the network's definition")
			continue
		}
		mean, err := meanOf(classes[name])
		if err != nil {
			return err
		}
		if err := c.readClass(name, mean, len(classes[name])); err != nil {
			return err
		}
	}
	return nil
}

// readClass decides one class by its mean. The released names come with centred norms; there the mean only
// has to agree.
func (c *Checkpoint) readClass(name string, mean float64, vectors int) error {
	reading, why := centred, ""
	switch {
	case mean > -centredMean && mean < centredMean:
	case mean >= foldedMean && !c.released():
		reading = folded
	case c.options.Norms != "":
		reading, why = normReading(c.options.Norms), ", as the caller said"
	case c.released() && mean < foldedMean:
		why = ", as under the released names"
	default:
		return fmt.Errorf("norms of class %s have a mean of %.3f over %d vectors, which does not tell whether w (mean near 0) or 1+w (near 1) is stored: say which (norms %q or %q)",
			name, mean, vectors, centred, folded)
	}
	c.norms[name] = reading
	convention := "zero-centred: the scale is 1 + the stored value"
	if reading == folded {
		convention = "folded: the stored value is the scale"
	}
	c.found("norm "+name, convention, fmt.Sprintf("mean %.3f over %d vectors%s", mean, vectors, why))
	return nil
}

// released says whether the file is in the release's own form: its names, nothing packed.
func (c *Checkpoint) released() bool {
	embed := c.find("model.language_model.embed_tokens")
	return !c.quant.present && embed != nil && embed.dtype.float() && strings.HasPrefix(embed.name, "model.language_model.")
}

// meanOf is the mean of all values of the vectors, in the order of their names.
func meanOf(vectors []*stored) (float64, error) {
	slices.SortFunc(vectors, func(a, b *stored) int { return strings.Compare(a.canonical, b.canonical) })
	sum, n := 0.0, 0
	for _, s := range vectors {
		values, err := s.floats()
		if err != nil {
			return 0, err
		}
		for _, v := range values {
			sum += float64(v)
		}
		n += len(values)
	}
	return sum / float64(max(n, 1)), nil
}

func (c *Checkpoint) found(class, convention, evidence string) {
	c.findings = append(c.findings, Finding{Class: class, Convention: convention, Evidence: evidence})
}
