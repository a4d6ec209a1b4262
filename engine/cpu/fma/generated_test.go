package fma_test

import (
	"testing"

	"lector/tests/generated"
)

// The assembly in the repository is what the generator writes.
func TestKernelsAreGenerated(t *testing.T) { generated.Kernels(t, "fma", "engine/cpu/fma") }
