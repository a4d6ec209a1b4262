package amx

// Calls of the kernels, which need more than a few arguments.
type (
	// call is some rows of x and a panel.
	call struct {
		to           *float32 // [32, 32]
		upper, lower *uint16  // the packed rows
		pairs        *uint16
		sides, sums  *float32
		temp         *float32 // [32, 32]
		groups       int
		steps        int
	}

	// splitting is some rows to split.
	splitting struct {
		to     *uint16
		sums   *float32
		rows   [high]*float32
		groups int
		steps  int
		n      int // rows
	}

	// fewCall is a few rows of x and where the codes, scales and biases of four times 16 outputs stand.
	fewCall struct {
		words, scales, biases [fewTiles]*byte
		parts                 *uint16
		sums                  *float32
		to                    *float32 // [rows, 64]
		temp                  *uint16
		groups                int
	}
)
