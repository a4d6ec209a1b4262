package ops

// Picker is what a Backend may be besides: one that finds the largest value of a row where it lies, so that the row need
// not come to the host.
type Picker interface {
	// Pick looks at the rows of y: the largest of the first n columns of each, the lower column of equals, and whether
	// every column is finite. At most as many rows as one batch of decoding has.
	Pick(y Tensor, n int) Picks
}

// Picks are what Pick found: coherent after Wait, until the next Pick.
type Picks interface {
	// Row is the column of row r's largest value, and whether the whole row is finite.
	Row(r int) (column int, finite bool)
}
