package fma

//go:generate go run ./gen -out kernels_amd64.s -stubs kernels_amd64.go -pkg fma

// Set names a set of kernels. All sets give the same bits: they differ in how many chains run side by side.
type Set uint8

const (
	Plain  Set = iota // Go
	NEON              // 128-bit registers of arm64
	AVX2              // 256-bit registers of amd64, with FMA
	AVX512            // 512-bit registers
)

func (s Set) String() string { return [...]string{"plain", "neon", "avx2", "avx512"}[s] }
