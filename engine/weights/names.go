package weights

import "strings"

// naming is one writer's prefix for tensors that the release names differently.
type naming struct {
	stored, canonical string
	vision            bool
}

// namings are tried in order; the first prefix that fits decides.
var namings = []naming{
	{stored: "model.visual.", vision: true},
	{stored: "vision_tower.", vision: true},
	{stored: "visual.", vision: true},
	{stored: "model.language_model.", canonical: "model.language_model."},
	{stored: "language_model.model.", canonical: "model.language_model."}, // mlx conversions with a tower
	{stored: "language_model.lm_head.", canonical: "lm_head."},
	{stored: "language_model.mtp.", canonical: "mtp."},
	{stored: "model.mtp.", canonical: "mtp."},
	{stored: "model.", canonical: "model.language_model."}, // text-only writers
}

// canonical turns a stored tensor's or module's name into the released one. Vision towers have none.
func canonical(name string) (released string, vision bool) {
	for _, n := range namings {
		rest, ok := strings.CutPrefix(name+".", n.stored) // a module may be named without what follows
		if !ok {
			continue
		}
		if n.vision {
			return name, true
		}
		name = n.canonical + strings.TrimSuffix(rest, ".")
		name = strings.TrimSuffix(name, ".")
		break
	}
	return strings.Replace(name, ".ngram_embedding.shards.", ".ngram_embedding.shard_", 1), false
}

// class is what a tensor is called within its module's kind: the part before ".weight", with its parent where
// the name alone does not tell two kinds apart.
func class(name string) string {
	name = strings.TrimSuffix(name, ".weight")
	parts := strings.Split(name, ".")
	last := parts[len(parts)-1]
	if (last == "norm" || last == "conv1d") && len(parts) > 1 {
		return parts[len(parts)-2] + "." + last
	}
	return last
}
