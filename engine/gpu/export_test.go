package gpu

// SetNear sets how many tokens of context the dense form of attention serves; 0: as the class has it.
func (b *Backend) SetNear(tokens int) { b.choices.near = tokens }
