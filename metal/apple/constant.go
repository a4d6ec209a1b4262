package apple

import (
	"fmt"
	"math"

	"lector/metal"
)

// The values of MTLDataType that function constants have.
const (
	dataTypeFloat = 3
	dataTypeInt   = 29
	dataTypeUInt  = 33
	dataTypeBool  = 53
)

// constantBits is a function constant's value in memory, low byte first, and its type.
func constantBits(c metal.Constant) (bits uint32, typ uintptr, err error) {
	switch v := c.Value.(type) {
	case bool:
		if v {
			bits = 1
		}
		return bits, dataTypeBool, nil
	case int32:
		return uint32(v), dataTypeInt, nil
	case uint32:
		return v, dataTypeUInt, nil
	case float32:
		return math.Float32bits(v), dataTypeFloat, nil
	}
	return 0, 0, fmt.Errorf("function constant %d has a value of type %T", c.Index, c.Value)
}
