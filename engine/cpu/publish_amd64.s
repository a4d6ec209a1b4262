//go:build !race

#include "textflag.h"

// func store(a *atomic.Uint64, v uint64)
TEXT ·store(SB), NOSPLIT, $0-16
	MOVQ a+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET
