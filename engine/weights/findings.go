package weights

import (
	"fmt"
	"slices"
	"strings"
)

// describe reports the conventions that no number depends on, or that shapes and names show.
func (c *Checkpoint) describe(v *verifier) {
	c.describeNames()
	c.describeTypes()
	c.describeConvs(v.convs)
	first := "model.language_model.layers.0"
	c.found("experts", c.expertForm(first), "names under "+first+".mlp")
	c.describeNgram()
	if c.HasMTP() {
		c.found("mtp", "present", "names under mtp.")
	}
	if c.packed != nil {
		c.found("packed", fmt.Sprintf("version %d", PackedVersion), c.packed.manifest.Settings)
	}
	if c.vision > 0 {
		c.found("vision", "ignored", fmt.Sprintf("%d tensors of the vision tower", c.vision))
	}
}

func (c *Checkpoint) describeNames() {
	stored := c.find("model.language_model.embed_tokens").name
	prefix := strings.TrimSuffix(stored, "embed_tokens.weight")
	convention := map[string]string{
		"model.language_model.": "released", "language_model.model.": "mlx", "model.": "text only",
	}[prefix]
	c.found("names", convention, "the embedding is "+stored)
}

// describeTypes counts matrices by the way they are stored.
func (c *Checkpoint) describeTypes() {
	counts, example := map[string]int{}, map[string]string{}
	for _, t := range c.list {
		if t.Quant == nil && len(t.Shape) < 2 {
			continue
		}
		form := c.form(t)
		if counts[form]++; counts[form] == 1 {
			example[form] = t.Name
		}
	}
	for _, form := range sortedKeys(counts) {
		c.found("matrices", form, fmt.Sprintf("%d tensors, e.g. %s", counts[form], example[form]))
	}
}

// form says how a matrix is stored, and where its group is not the config's.
func (c *Checkpoint) form(t Tensor) string {
	q := t.Quant
	if q == nil {
		return string(t.DType)
	}
	form := fmt.Sprintf("affine %d-bit, groups of %d, %s scales", q.Bits, q.Group, q.Side)
	spec, explicit := c.quant.modules[strings.TrimSuffix(t.Name, ".weight")]
	if !explicit {
		spec = c.quant.def
	}
	if spec.group != 0 && spec.group != q.Group {
		form += fmt.Sprintf(" (config.json's default group is %d)", spec.group)
	}
	return form
}

func (c *Checkpoint) describeConvs(convs []*stored) {
	counts := map[string]map[string]int{}
	for _, s := range convs {
		layout := "[C, 1, K]"
		if s.shape[2] == 1 {
			layout = "[C, K, 1]"
		}
		name := class(s.canonical)
		if counts[name] == nil {
			counts[name] = map[string]int{}
		}
		counts[name][layout]++
	}
	for _, name := range sortedKeys(counts) {
		for _, layout := range sortedKeys(counts[name]) {
			c.found("conv "+name, layout, fmt.Sprintf("shape of %d tensors", counts[name][layout]))
		}
	}
}

func (c *Checkpoint) describeNgram() {
	for _, i := range c.config.PLELayers {
		base := embedding(fmt.Sprintf("model.language_model.layers.%d", i))
		if c.packed != nil {
			c.found("n-gram table", fmt.Sprintf("%d shards in rows of records", c.config.NgramShards), "the packed store says so")
			c.found("n-gram constants", c.ngramSource(i), fmt.Sprintf("seed %d, base %d", c.config.Seed, c.config.NgramBase))
			continue
		}
		spelling := "shard_N"
		if shard := c.find(base + "ngram_embedding.shard_0"); strings.Contains(shard.name, ".shards.") {
			spelling = "shards.N"
		}
		c.found("n-gram table", fmt.Sprintf("%d shards named %s", c.config.NgramShards, spelling), "names under "+base)
		c.found("n-gram constants", c.ngramSource(i), fmt.Sprintf("seed %d, base %d", c.config.Seed, c.config.NgramBase))
	}
}

// ngramSource says where the multipliers of a layer's hash come from.
func (c *Checkpoint) ngramSource(layer int) string {
	s := c.tensors[embedding(fmt.Sprintf("model.language_model.layers.%d", layer))+"layer_multipliers"]
	if s == nil {
		return "computed, none stored"
	}
	formula := c.config.multipliers(uint64(c.config.PLEIndex(layer)))
	if got, err := s.integers(len(formula)); err == nil && slices.Equal(got, formula) {
		return "stored, equal to the formula"
	}
	return "the formula's, since those stored went through float32"
}

// checkUnused reports tensors that nothing reads. One of them may not be a bias of a module that is read: the
// network has none, so ignoring it would give wrong numbers.
func (c *Checkpoint) checkUnused() error {
	used := map[string]bool{}
	for _, s := range c.used {
		used[s.canonical] = true
	}
	count, example := 0, ""
	for _, name := range sortedKeys(c.tensors) {
		if used[name] {
			continue
		}
		s := c.tensors[name]
		if module, ok := strings.CutSuffix(name, ".bias"); ok && used[module+".weight"] {
			return fmt.Errorf("tensor %s: the network has no bias there", s)
		}
		if count++; count == 1 {
			example = s.name
		}
	}
	if count > 0 {
		c.found("ignored", "unknown", fmt.Sprintf("%d tensors, e.g. %s", count, example))
	}
	return nil
}
