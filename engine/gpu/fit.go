package gpu

import "lector/engine/ops"

func shapes() ops.Shapes { return ops.Shapes{Backend: "gpu", Groups: []int{32, 64, 128}} }

// fit panics unless ok, naming the operation and the shapes it was given.
func fit(ok bool, op string, tensors ...ops.Tensor) { shapes().Fit(ok, op, tensors...) }
