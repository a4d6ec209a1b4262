package amx

// multiply32 adds to c.to the products of 32 rows of x with a panel.
//
//go:noescape
func multiply32(c *call)

// multiply32x2 is multiply32 for groups of two steps.
//
//go:noescape
func multiply32x2(c *call)

// multiply16 is multiply32 for the upper half.
//
//go:noescape
func multiply16(c *call)

// few1 sets c.to to the products of a row of x with 64 outputs, codes of 4 bits in groups of 64.
//
//go:noescape
func few1(c *fewCall)

// few4 is few1 for four rows.
//
//go:noescape
func few4(c *fewCall)

// split is splitPlain.
//
//go:noescape
func split(c *splitting)

// pair is pairPlain; steps are of 32 inputs.
//
//go:noescape
func pair(to *uint16, panel *float32, steps int)

// pair4 brings words of codes of 4 bits, of 16 outputs, into their tile of every step of a panel.
//
//go:noescape
func pair4(to *uint16, words *float32, steps int)

// center is centerPlain.
//
//go:noescape
func center(sides *float32, groups int, middle float32)
