package main

import "math/big"

// cubeRootFraction is the first 32 bits of the fractional part of the cube root of p.
func cubeRootFraction(p uint64) uint32 {
	scaled := new(big.Int).Lsh(new(big.Int).SetUint64(p), 3*32)
	low, high := big.NewInt(0), new(big.Int).Lsh(big.NewInt(1), 40) // low³ <= p·2⁹⁶ < high³
	for one := big.NewInt(1); new(big.Int).Sub(high, low).Cmp(one) > 0; {
		middle := new(big.Int).Rsh(new(big.Int).Add(low, high), 1)
		if new(big.Int).Exp(middle, big.NewInt(3), nil).Cmp(scaled) <= 0 {
			low = middle
		} else {
			high = middle
		}
	}
	return uint32(low.Uint64())
}
