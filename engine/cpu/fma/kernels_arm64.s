#include "textflag.h"

// Kernels for NEON. Lanes are outputs; a product is fused with its addition. Where Go's assembler lacks an instruction,
// it stands as a word: UCVTF Vn.4S, Vn.4S is 0x6e21d800 with n in bits 0-4 and 5-9.

#define UCVTF(n) WORD $(0x6e21d800 + n + 32*n)

// func dotsNEON4(c, x Rows, w panelOf, first bool)
// c[r, j] += x[r, i] * panel[i*step+j], i < n ascending, for r < 4 and j < 16; c starts at zero if first.
TEXT ·dotsNEON4(SB), NOSPLIT, $0-89
	MOVD c_Data_base+0(FP), R0
	MOVD c_Step+24(FP), R1
	MOVD x_Data_base+32(FP), R2
	MOVD x_Step+56(FP), R3
	MOVD w_data+64(FP), R4
	MOVD w_step+72(FP), R13
	MOVD w_n+80(FP), R5
	MOVBU first+88(FP), R6
	LSL  $2, R13, R13
	LSL  $2, R1, R1
	LSL  $2, R3, R3
	ADD  R0, R1, R7 // rows of c: R0, R7, R8, R9
	ADD  R7, R1, R8
	ADD  R8, R1, R9
	ADD  R2, R3, R10 // rows of x: R2, R10, R11, R12
	ADD  R10, R3, R11
	ADD  R11, R3, R12
	CBNZ R6, zero4
	VLD1 (R0), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1 (R7), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1 (R8), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1 (R9), [V12.S4, V13.S4, V14.S4, V15.S4]
	B    loop4

zero4:
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16
	VEOR V4.B16, V4.B16, V4.B16
	VEOR V5.B16, V5.B16, V5.B16
	VEOR V6.B16, V6.B16, V6.B16
	VEOR V7.B16, V7.B16, V7.B16
	VEOR V8.B16, V8.B16, V8.B16
	VEOR V9.B16, V9.B16, V9.B16
	VEOR V10.B16, V10.B16, V10.B16
	VEOR V11.B16, V11.B16, V11.B16
	VEOR V12.B16, V12.B16, V12.B16
	VEOR V13.B16, V13.B16, V13.B16
	VEOR V14.B16, V14.B16, V14.B16
	VEOR V15.B16, V15.B16, V15.B16

loop4:
	CBZ   R5, done4
	VLD1  (R4), [V16.S4, V17.S4, V18.S4, V19.S4]
	ADD   R13, R4, R4
	VLD1R.P 4(R2), [V20.S4]
	VLD1R.P 4(R10), [V21.S4]
	VLD1R.P 4(R11), [V22.S4]
	VLD1R.P 4(R12), [V23.S4]
	VFMLA V20.S4, V16.S4, V0.S4
	VFMLA V20.S4, V17.S4, V1.S4
	VFMLA V20.S4, V18.S4, V2.S4
	VFMLA V20.S4, V19.S4, V3.S4
	VFMLA V21.S4, V16.S4, V4.S4
	VFMLA V21.S4, V17.S4, V5.S4
	VFMLA V21.S4, V18.S4, V6.S4
	VFMLA V21.S4, V19.S4, V7.S4
	VFMLA V22.S4, V16.S4, V8.S4
	VFMLA V22.S4, V17.S4, V9.S4
	VFMLA V22.S4, V18.S4, V10.S4
	VFMLA V22.S4, V19.S4, V11.S4
	VFMLA V23.S4, V16.S4, V12.S4
	VFMLA V23.S4, V17.S4, V13.S4
	VFMLA V23.S4, V18.S4, V14.S4
	VFMLA V23.S4, V19.S4, V15.S4
	SUB   $1, R5, R5
	B     loop4

done4:
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R0)
	VST1 [V4.S4, V5.S4, V6.S4, V7.S4], (R7)
	VST1 [V8.S4, V9.S4, V10.S4, V11.S4], (R8)
	VST1 [V12.S4, V13.S4, V14.S4, V15.S4], (R9)
	RET

// func dotsNEON1(c, x *float32, w panelOf, first bool)
// The same for one row and 32 columns.
TEXT ·dotsNEON1(SB), NOSPLIT, $0-41
	MOVD c+0(FP), R0
	MOVD x+8(FP), R2
	MOVD w_data+16(FP), R4
	MOVD w_step+24(FP), R13
	MOVD w_n+32(FP), R5
	MOVBU first+40(FP), R6
	LSL  $2, R13, R13
	ADD  $64, R0, R1
	CBNZ R6, zero1
	VLD1 (R0), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1 (R1), [V4.S4, V5.S4, V6.S4, V7.S4]
	B    loop1

zero1:
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16
	VEOR V4.B16, V4.B16, V4.B16
	VEOR V5.B16, V5.B16, V5.B16
	VEOR V6.B16, V6.B16, V6.B16
	VEOR V7.B16, V7.B16, V7.B16

loop1:
	CBZ    R5, done1
	ADD    $64, R4, R7
	VLD1   (R4), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1   (R7), [V24.S4, V25.S4, V26.S4, V27.S4]
	ADD    R13, R4, R4
	VLD1R.P 4(R2), [V20.S4]
	VFMLA  V20.S4, V16.S4, V0.S4
	VFMLA  V20.S4, V17.S4, V1.S4
	VFMLA  V20.S4, V18.S4, V2.S4
	VFMLA  V20.S4, V19.S4, V3.S4
	VFMLA  V20.S4, V24.S4, V4.S4
	VFMLA  V20.S4, V25.S4, V5.S4
	VFMLA  V20.S4, V26.S4, V6.S4
	VFMLA  V20.S4, V27.S4, V7.S4
	SUB    $1, R5, R5
	B      loop1

done1:
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R0)
	VST1 [V4.S4, V5.S4, V6.S4, V7.S4], (R1)
	RET

// func dotsNEONHalf(c, x *float32, w panelOf, first bool)
// The same for one row and 16 columns.
TEXT ·dotsNEONHalf(SB), NOSPLIT, $0-41
	MOVD c+0(FP), R0
	MOVD x+8(FP), R2
	MOVD w_data+16(FP), R4
	MOVD w_step+24(FP), R13
	MOVD w_n+32(FP), R5
	MOVBU first+40(FP), R6
	LSL  $2, R13, R13
	CBNZ R6, zeroHalf
	VLD1 (R0), [V0.S4, V1.S4, V2.S4, V3.S4]
	B    loopHalf

zeroHalf:
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16

loopHalf:
	CBZ    R5, doneHalf
	VLD1   (R4), [V16.S4, V17.S4, V18.S4, V19.S4]
	ADD    R13, R4, R4
	VLD1R.P 4(R2), [V20.S4]
	VFMLA  V20.S4, V16.S4, V0.S4
	VFMLA  V20.S4, V17.S4, V1.S4
	VFMLA  V20.S4, V18.S4, V2.S4
	VFMLA  V20.S4, V19.S4, V3.S4
	SUB    $1, R5, R5
	B      loopHalf

doneHalf:
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R0)
	RET

// func affineNEON(panel *float32, codes *uint32, n int, scales, biases *float32)
// panel[i*32+j] = scales[j] * codes[i*16+j] + biases[j], fused, for i < n and j < 16.
TEXT ·affineNEON(SB), NOSPLIT, $0-40
	MOVD panel+0(FP), R0
	MOVD codes+8(FP), R1
	MOVD n+16(FP), R2
	MOVD scales+24(FP), R3
	MOVD biases+32(FP), R4
	VLD1 (R3), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1 (R4), [V4.S4, V5.S4, V6.S4, V7.S4]

loopAffine:
	CBZ    R2, doneAffine
	VLD1.P 64(R1), [V8.S4, V9.S4, V10.S4, V11.S4]
	UCVTF(8)
	UCVTF(9)
	UCVTF(10)
	UCVTF(11)
	VORR   V4.B16, V4.B16, V12.B16
	VORR   V5.B16, V5.B16, V13.B16
	VORR   V6.B16, V6.B16, V14.B16
	VORR   V7.B16, V7.B16, V15.B16
	VFMLA  V8.S4, V0.S4, V12.S4
	VFMLA  V9.S4, V1.S4, V13.S4
	VFMLA  V10.S4, V2.S4, V14.S4
	VFMLA  V11.S4, V3.S4, V15.S4
	VST1   [V12.S4, V13.S4, V14.S4, V15.S4], (R0)
	ADD    $128, R0, R0
	SUB    $1, R2, R2
	B      loopAffine

doneAffine:
	RET

// One code of 4 bits, `shift` bits up, of the 16 words in V20 to V23.
#define NIBBLE(shift) \
	VUSHR $shift, V20.S4, V8.S4;         \
	VUSHR $shift, V21.S4, V9.S4;         \
	VUSHR $shift, V22.S4, V10.S4;        \
	VUSHR $shift, V23.S4, V11.S4;        \
	VAND  V24.B16, V8.B16, V8.B16;       \
	VAND  V24.B16, V9.B16, V9.B16;       \
	VAND  V24.B16, V10.B16, V10.B16;     \
	VAND  V24.B16, V11.B16, V11.B16;     \
	DECODED

#define DECODED \
	UCVTF(8);                            \
	UCVTF(9);                            \
	UCVTF(10);                           \
	UCVTF(11);                           \
	VORR  V4.B16, V4.B16, V12.B16;       \
	VORR  V5.B16, V5.B16, V13.B16;       \
	VORR  V6.B16, V6.B16, V14.B16;       \
	VORR  V7.B16, V7.B16, V15.B16;       \
	VFMLA V8.S4, V0.S4, V12.S4;          \
	VFMLA V9.S4, V1.S4, V13.S4;          \
	VFMLA V10.S4, V2.S4, V14.S4;         \
	VFMLA V11.S4, V3.S4, V15.S4;         \
	VST1  [V12.S4, V13.S4, V14.S4, V15.S4], (R0); \
	ADD   $128, R0, R0

// func nibblesNEON(panel *float32, words *uint32, n int, scales, biases *float32)
// panel[(8i+k)*32+j] = scales[j] * nibble k of words[i*16+j] + biases[j], fused, for i < n, k < 8 and j < 16.
TEXT ·nibblesNEON(SB), NOSPLIT, $0-40
	MOVD panel+0(FP), R0
	MOVD words+8(FP), R1
	MOVD n+16(FP), R2
	MOVD scales+24(FP), R3
	MOVD biases+32(FP), R4
	VLD1 (R3), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1 (R4), [V4.S4, V5.S4, V6.S4, V7.S4]
	MOVD $15, R5
	VDUP R5, V24.S4

loopNibbles:
	CBZ    R2, doneNibbles
	VLD1.P 64(R1), [V20.S4, V21.S4, V22.S4, V23.S4]
	VAND   V24.B16, V20.B16, V8.B16
	VAND   V24.B16, V21.B16, V9.B16
	VAND   V24.B16, V22.B16, V10.B16
	VAND   V24.B16, V23.B16, V11.B16
	DECODED
	NIBBLE(4)
	NIBBLE(8)
	NIBBLE(12)
	NIBBLE(16)
	NIBBLE(20)
	NIBBLE(24)
	NIBBLE(28)
	SUB    $1, R2, R2
	B      loopNibbles

doneNibbles:
	RET
