package ptx

import (
	"lector/metal"
	"lector/metal/msl"
)

// Specialised is a unit's PTX for one kernel, for tests without a GPU.
func Specialised(text string, declared []msl.Constant, kernel string, constants []metal.Constant) (string, error) {
	u := &unit{text: text, Constants: declared}
	return u.specialised(kernel, constants)
}

// Bounded is the text with the kernels' own bounds on a threadgroup.
var Bounded = bounded
