package shaders

// Structs returns one of each generated struct.
func Structs() []any { return append(paramsStructs(), blocksStructs()...) }
