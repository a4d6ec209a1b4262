#include "go_asm.h"
#include "textflag.h"

// Go's assembler does not know the instructions of AMX; these are their codes. A base is the number of a register below 8,
// neither 4 nor 5; AX is the distance of a tile's rows.
#define TDPBF16PS(to, a, b) BYTE $0xC4; BYTE $0xE2; BYTE $((15-b)*8+2); BYTE $0x5C; BYTE $(0xC0+to*8+a)
#define TILEZERO(tile) BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x49; BYTE $(0xC0+tile*8)
#define TILELOADD(tile, base, disp) BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $(0x84+tile*8); BYTE $base; LONG $disp
#define TILESTORED(tile, base, disp) BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $(0x84+tile*8); BYTE $base; LONG $disp
#define LDTILECFG_AX BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0x00
#define TILERELEASE BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0xC0

#define inCX 1
#define inDX 2
#define inBX 3
#define inSI 6
#define inDI 7

// Eight tiles of 16 rows of 64 bytes.
DATA shape<>+0(SB)/8, $1
DATA shape<>+8(SB)/8, $0
DATA shape<>+16(SB)/8, $0x0040004000400040
DATA shape<>+24(SB)/8, $0x0040004000400040
DATA shape<>+32(SB)/8, $0
DATA shape<>+40(SB)/8, $0
DATA shape<>+48(SB)/8, $0x1010101010101010
DATA shape<>+56(SB)/8, $0
GLOBL shape<>(SB), RODATA|NOPTR, $64

// The odd words of two registers.
DATA upper<>+0(SB)/8, $0x0007000500030001
DATA upper<>+8(SB)/8, $0x000f000d000b0009
DATA upper<>+16(SB)/8, $0x0017001500130011
DATA upper<>+24(SB)/8, $0x001f001d001b0019
DATA upper<>+32(SB)/8, $0x0027002500230021
DATA upper<>+40(SB)/8, $0x002f002d002b0029
DATA upper<>+48(SB)/8, $0x0037003500330031
DATA upper<>+56(SB)/8, $0x003f003d003b0039
GLOBL upper<>(SB), RODATA|NOPTR, $64

DATA mask<>+0(SB)/4, $0xffff0000
GLOBL mask<>(SB), RODATA|NOPTR, $4

// A part of 32 rows of x meets the weights in tiles 6 and 7.
#define PART32(at) \
	TILELOADD(4, inSI, at); \
	TILELOADD(5, inDI, at); \
	TDPBF16PS(0, 4, 6); \
	TDPBF16PS(1, 4, 7); \
	TDPBF16PS(2, 5, 6); \
	TDPBF16PS(3, 5, 7)

// A part of 16 rows.
#define PART16(at) \
	TILELOADD(4, inSI, at); \
	TDPBF16PS(0, 4, 6); \
	TDPBF16PS(1, 4, 7)

// A group's scales and biases.
#define SIDES \
	VMOVUPS (R8), Z0; \
	VMOVUPS 64(R8), Z1; \
	VMOVUPS 128(R8), Z2; \
	VMOVUPS 192(R8), Z3

// Row r of results takes its sums of products and of inputs.
#define ROW(r) \
	VMOVUPS (128*r)(CX), Z4; \
	VMOVUPS (128*r+64)(CX), Z5; \
	VFMADD231PS (128*r)(DX), Z0, Z4; \
	VFMADD231PS (128*r+64)(DX), Z1, Z5; \
	VFMADD231PS.BCST (4*r)(R9), Z2, Z4; \
	VFMADD231PS.BCST (4*r)(R9), Z3, Z5; \
	VMOVUPS Z4, (128*r)(CX); \
	VMOVUPS Z5, (128*r+64)(CX)

#define ROWS16(r) \
	ROW((r+0)); ROW((r+1)); ROW((r+2)); ROW((r+3)); ROW((r+4)); ROW((r+5)); ROW((r+6)); ROW((r+7)); \
	ROW((r+8)); ROW((r+9)); ROW((r+10)); ROW((r+11)); ROW((r+12)); ROW((r+13)); ROW((r+14)); ROW((r+15))

#define NEXT32 \
	ADDQ $3072, SI; \
	ADDQ $3072, DI; \
	ADDQ $2048, BX

#define CLEAR32 \
	TILEZERO(0); \
	TILEZERO(1); \
	TILEZERO(2); \
	TILEZERO(3)

#define STORE32 \
	MOVQ $128, AX; \
	TILESTORED(0, inDX, 0); \
	TILESTORED(1, inDX, 64); \
	TILESTORED(2, inDX, 2048); \
	TILESTORED(3, inDX, 2112); \
	MOVQ $64, AX

// func multiply32(c *call)
TEXT ·multiply32(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), R15
	MOVQ call_to(R15), CX
	MOVQ call_pairs(R15), BX
	MOVQ call_sides(R15), R8
	MOVQ call_temp(R15), DX
	LEAQ shape<>(SB), AX
	LDTILECFG_AX
	MOVQ $64, AX
	MOVQ call_upper(R15), SI
	MOVQ call_lower(R15), DI
	MOVQ call_sums(R15), R9
	MOVQ call_groups(R15), R10

group:
	CLEAR32
	MOVQ call_steps(R15), R11

step:
	TILELOADD(6, inBX, 0)
	TILELOADD(7, inBX, 1024)
	PART32(0)
	PART32(1024)
	PART32(2048)
	NEXT32
	DECQ R11
	JNZ  step
	STORE32
	SIDES
	ROWS16(0)
	ROWS16(16)
	ADDQ $256, R8
	ADDQ $128, R9
	DECQ R10
	JNZ  group
	TILERELEASE
	VZEROUPPER
	RET

// multiply32 for groups of two steps. While a group goes through the tiles, the results take the sums of the one before.
//
// func multiply32x2(c *call)
TEXT ·multiply32x2(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), R15
	MOVQ call_to(R15), CX
	MOVQ call_upper(R15), SI
	MOVQ call_lower(R15), DI
	MOVQ call_pairs(R15), BX
	MOVQ call_sides(R15), R8
	MOVQ call_sums(R15), R9
	MOVQ call_temp(R15), DX
	MOVQ call_groups(R15), R10
	LEAQ shape<>(SB), AX
	LDTILECFG_AX
	MOVQ $64, AX
	CLEAR32
	TILELOADD(6, inBX, 0)
	TILELOADD(7, inBX, 1024)
	PART32(0)
	PART32(1024)
	PART32(2048)
	NEXT32
	TILELOADD(6, inBX, 0)
	TILELOADD(7, inBX, 1024)
	PART32(0)
	PART32(1024)
	PART32(2048)
	NEXT32
	STORE32
	DECQ R10
	JZ   last

group:
	SIDES
	CLEAR32
	TILELOADD(6, inBX, 0)
	TILELOADD(7, inBX, 1024)
	PART32(0)
	ROW(0)
	ROW(1)
	ROW(2)
	ROW(3)
	ROW(4)
	ROW(5)
	PART32(1024)
	ROW(6)
	ROW(7)
	ROW(8)
	ROW(9)
	ROW(10)
	ROW(11)
	PART32(2048)
	ROW(12)
	ROW(13)
	ROW(14)
	ROW(15)
	ROW(16)
	NEXT32
	TILELOADD(6, inBX, 0)
	TILELOADD(7, inBX, 1024)
	PART32(0)
	ROW(17)
	ROW(18)
	ROW(19)
	ROW(20)
	ROW(21)
	PART32(1024)
	ROW(22)
	ROW(23)
	ROW(24)
	ROW(25)
	ROW(26)
	PART32(2048)
	ROW(27)
	ROW(28)
	ROW(29)
	ROW(30)
	ROW(31)
	NEXT32
	STORE32
	ADDQ $256, R8
	ADDQ $128, R9
	DECQ R10
	JNZ  group

last:
	SIDES
	ROWS16(0)
	ROWS16(16)
	TILERELEASE
	VZEROUPPER
	RET

// func multiply16(c *call)
TEXT ·multiply16(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), R15
	MOVQ call_to(R15), CX
	MOVQ call_pairs(R15), BX
	MOVQ call_sides(R15), R8
	MOVQ call_temp(R15), DX
	LEAQ shape<>(SB), AX
	LDTILECFG_AX
	MOVQ call_upper(R15), SI
	MOVQ call_sums(R15), R9
	MOVQ call_groups(R15), R10

group:
	MOVQ $64, AX
	TILEZERO(0)
	TILEZERO(1)
	MOVQ call_steps(R15), R11

step:
	TILELOADD(6, inBX, 0)
	TILELOADD(7, inBX, 1024)
	PART16(0)
	PART16(1024)
	PART16(2048)
	ADDQ $3072, SI
	ADDQ $2048, BX
	DECQ R11
	JNZ  step
	MOVQ $128, AX
	TILESTORED(0, inDX, 0)
	TILESTORED(1, inDX, 64)
	SIDES
	ROWS16(0)
	ADDQ $256, R8
	ADDQ $128, R9
	DECQ R10
	JNZ  group
	TILERELEASE
	VZEROUPPER
	RET

// The codes of 4 bits, less 8, as bf16: twice, so that the bit above a code does not matter.
DATA middle4<>+0(SB)/8, $0xc0a0c0c0c0e0c100
DATA middle4<>+8(SB)/8, $0xbf80c000c040c080
DATA middle4<>+16(SB)/8, $0x404040003f800000
DATA middle4<>+24(SB)/8, $0x40e040c040a04080
DATA middle4<>+32(SB)/8, $0xc0a0c0c0c0e0c100
DATA middle4<>+40(SB)/8, $0xbf80c000c040c080
DATA middle4<>+48(SB)/8, $0x404040003f800000
DATA middle4<>+56(SB)/8, $0x40e040c040a04080
GLOBL middle4<>(SB), RODATA|NOPTR, $64

DATA eight<>+0(SB)/4, $0x41000000
GLOBL eight<>(SB), RODATA|NOPTR, $4

// Four tiles of sums and three of a few rows, and one of weights.
DATA shape1<>+0(SB)/8, $1
DATA shape1<>+8(SB)/8, $0
DATA shape1<>+16(SB)/8, $0x0040004000400040
DATA shape1<>+24(SB)/8, $0x0040004000400040
DATA shape1<>+32(SB)/8, $0
DATA shape1<>+40(SB)/8, $0
DATA shape1<>+48(SB)/8, $0x1001010101010101
DATA shape1<>+56(SB)/8, $0
GLOBL shape1<>(SB), RODATA|NOPTR, $64

DATA shape4<>+0(SB)/8, $1
DATA shape4<>+8(SB)/8, $0
DATA shape4<>+16(SB)/8, $0x0040004000400040
DATA shape4<>+24(SB)/8, $0x0040004000400040
DATA shape4<>+32(SB)/8, $0
DATA shape4<>+40(SB)/8, $0
DATA shape4<>+48(SB)/8, $0x1004040404040404
DATA shape4<>+56(SB)/8, $0
GLOBL shape4<>(SB), RODATA|NOPTR, $64

// Two codes of a word, for a row of a tile, are the lowest of Z11.
#define PAIR4(at) \
	VPSLLD     $12, Z11, Z10; \
	VPTERNLOGD $0xD8, Z13, Z10, Z11; \
	VPERMW     Z12, Z11, Z11; \
	VMOVDQU32  Z11, at(BX)

// A word of 16 outputs becomes four rows of a tile.
#define WORD4(from, at) \
	VMOVDQU32 from(R11)(R12*1), Z8; \
	VMOVDQA32 Z8, Z11; \
	PAIR4((at)); \
	VPSRLD $8, Z8, Z11; \
	PAIR4((at+64)); \
	VPSRLD $16, Z8, Z11; \
	PAIR4((at+128)); \
	VPSRLD $24, Z8, Z11; \
	PAIR4((at+192))

// Words of 32 inputs of 16 outputs become a tile.
#define TILE4(from, at) \
	WORD4((from), (at)); \
	WORD4((from+64), (at+256)); \
	WORD4((from+128), (at+512)); \
	WORD4((from+192), (at+768))

// A group of the outputs whose codes begin at `words` of a call becomes two tiles.
#define UNPACK4(words, at) \
	MOVQ (fewCall_words+words)(R10), R11; \
	TILE4(0, at); \
	TILE4(256, (at+1024))

// A step of a few rows meets that of four times 16 outputs.
#define FEWSTEP(parts, tiles) \
	TILELOADD(4, inSI, parts); \
	TILELOADD(5, inSI, (parts+1024)); \
	TILELOADD(6, inSI, (parts+2048)); \
	FEWTILE(0, tiles); \
	FEWTILE(1, (tiles+2048)); \
	FEWTILE(2, (tiles+4096)); \
	FEWTILE(3, (tiles+6144))

#define FEWTILE(to, at) \
	TILELOADD(7, inBX, at); \
	TDPBF16PS(to, 4, 7); \
	TDPBF16PS(to, 5, 7); \
	TDPBF16PS(to, 6, 7)

#define UNPACKALL \
	UNPACK4(0, 0); \
	UNPACK4(8, 2048); \
	UNPACK4(16, 4096); \
	UNPACK4(24, 6144)

// A group's scales and biases of the h-th 16 outputs.
#define FEWSIDES(h) \
	MOVQ        (fewCall_scales+8*h)(R10), R11; \
	VPMOVZXWD   (R11)(R13*1), Z0; \
	VPSLLD      $16, Z0, Z0; \
	MOVQ        (fewCall_biases+8*h)(R10), R11; \
	VPMOVZXWD   (R11)(R13*1), Z1; \
	VPSLLD      $16, Z1, Z1; \
	VFMADD231PS Z14, Z0, Z1

// Row r of the sums at h goes to acc.
#define FEWROW(h, r, acc) \
	VFMADD231PS      (1024*h+64*r)(DX), Z0, acc; \
	VFMADD231PS.BCST (4*r)(R9), Z1, acc

#define FEWBEGIN(shape) \
	MOVQ fewCall_parts(R10), SI; \
	MOVQ fewCall_sums(R10), R9; \
	MOVQ fewCall_temp(R10), DX; \
	LEAQ 4096(DX), BX; \
	LEAQ 8192(BX), DI; \
	MOVQ fewCall_groups(R10), R8; \
	XORQ R12, R12; \
	XORQ R13, R13; \
	LEAQ shape<>(SB), AX; \
	LDTILECFG_AX; \
	MOVQ $64, AX; \
	VMOVDQU64    middle4<>(SB), Z12; \
	VPBROADCASTD mask<>(SB), Z13; \
	VBROADCASTSS eight<>(SB), Z14

#define FEWSTORE \
	TILESTORED(0, inDX, 0); \
	TILESTORED(1, inDX, 1024); \
	TILESTORED(2, inDX, 2048); \
	TILESTORED(3, inDX, 3072)

#define ZERO4(a, b, c, d) \
	VPXORD a, a, a; \
	VPXORD b, b, b; \
	VPXORD c, c, c; \
	VPXORD d, d, d

// few1 goes through the groups of a row of x: while one is in the tiles, the next is unpacked where the one before was. R12
// and R13 are how far it is in the codes and in the scales.
//
// func few1(c *fewCall)
TEXT ·few1(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), R10
	FEWBEGIN(shape1)
	ZERO4(Z16, Z20, Z24, Z28)
	UNPACKALL

group:
	CLEAR32
	FEWSTEP(0, 0)
	FEWSTEP(3072, 1024)
	XCHGQ BX, DI
	ADDQ  $6144, SI
	ADDQ  $512, R12
	CMPQ  R8, $1
	JE    sum
	UNPACKALL

sum:
	FEWSTORE
	FEWSIDES(0)
	FEWROW(0, 0, Z16)
	FEWSIDES(1)
	FEWROW(1, 0, Z20)
	FEWSIDES(2)
	FEWROW(2, 0, Z24)
	FEWSIDES(3)
	FEWROW(3, 0, Z28)
	ADDQ $32, R13
	ADDQ $128, R9
	DECQ R8
	JNZ  group
	MOVQ fewCall_to(R10), DX
	VMOVUPS Z16, 0(DX)
	VMOVUPS Z20, 64(DX)
	VMOVUPS Z24, 128(DX)
	VMOVUPS Z28, 192(DX)
	TILERELEASE
	VZEROUPPER
	RET

// few4 is few1 for four rows.
//
// func few4(c *fewCall)
TEXT ·few4(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), R10
	FEWBEGIN(shape4)
	ZERO4(Z16, Z17, Z18, Z19)
	ZERO4(Z20, Z21, Z22, Z23)
	ZERO4(Z24, Z25, Z26, Z27)
	ZERO4(Z28, Z29, Z30, Z31)
	UNPACKALL

group:
	CLEAR32
	FEWSTEP(0, 0)
	FEWSTEP(3072, 1024)
	XCHGQ BX, DI
	ADDQ  $6144, SI
	ADDQ  $512, R12
	CMPQ  R8, $1
	JE    sum
	UNPACKALL

sum:
	FEWSTORE
	FEWSIDES(0)
	FEWROW(0, 0, Z16)
	FEWROW(0, 1, Z17)
	FEWROW(0, 2, Z18)
	FEWROW(0, 3, Z19)
	FEWSIDES(1)
	FEWROW(1, 0, Z20)
	FEWROW(1, 1, Z21)
	FEWROW(1, 2, Z22)
	FEWROW(1, 3, Z23)
	FEWSIDES(2)
	FEWROW(2, 0, Z24)
	FEWROW(2, 1, Z25)
	FEWROW(2, 2, Z26)
	FEWROW(2, 3, Z27)
	FEWSIDES(3)
	FEWROW(3, 0, Z28)
	FEWROW(3, 1, Z29)
	FEWROW(3, 2, Z30)
	FEWROW(3, 3, Z31)
	ADDQ $32, R13
	ADDQ $128, R9
	DECQ R8
	JNZ  group
	MOVQ fewCall_to(R10), DX
	VMOVUPS Z16, 0(DX)
	VMOVUPS Z17, 256(DX)
	VMOVUPS Z18, 512(DX)
	VMOVUPS Z19, 768(DX)
	VMOVUPS Z20, 64(DX)
	VMOVUPS Z21, 320(DX)
	VMOVUPS Z22, 576(DX)
	VMOVUPS Z23, 832(DX)
	VMOVUPS Z24, 128(DX)
	VMOVUPS Z25, 384(DX)
	VMOVUPS Z26, 640(DX)
	VMOVUPS Z27, 896(DX)
	VMOVUPS Z28, 192(DX)
	VMOVUPS Z29, 448(DX)
	VMOVUPS Z30, 704(DX)
	VMOVUPS Z31, 960(DX)
	TILERELEASE
	VZEROUPPER
	RET

// The upper halves of Z4 and Z5 go to a part, and out of both.
#define TAKE(at) \
	VPANDD   Z4, Z31, Z6; \
	VPANDD   Z5, Z31, Z7; \
	VSUBPS   Z6, Z4, Z4; \
	VSUBPS   Z7, Z5, Z5; \
	VPERMT2W Z7, Z30, Z6; \
	VMOVDQU16 Z6, at(CX)

// func split(c *splitting)
TEXT ·split(SB), NOSPLIT, $0-8
	MOVQ         c+0(FP), SI
	MOVQ         splitting_to(SI), DI
	MOVQ         splitting_sums(SI), R9
	MOVQ         splitting_groups(SI), R10
	MOVQ         splitting_steps(SI), R12
	MOVQ         splitting_n(SI), BX
	LEAQ         splitting_rows(SI), SI
	XORQ         DX, DX // bytes of a row that are done
	VMOVDQU64    upper<>(SB), Z30
	VPBROADCASTD mask<>(SB), Z31

group:
	XORQ R8, R8
	MOVQ DI, R13

row:
	MOVQ   (SI)(R8*8), AX
	ADDQ   DX, AX
	MOVQ   R13, CX
	VPXORD Z0, Z0, Z0
	MOVQ   R12, R11

step:
	VMOVUPS (AX), Z4
	VMOVUPS 64(AX), Z5
	VADDPS  Z4, Z0, Z0
	VADDPS  Z5, Z0, Z0
	TAKE(0)
	TAKE(1024)
	TAKE(2048)
	ADDQ    $128, AX
	ADDQ    $3072, CX
	DECQ    R11
	JNZ     step

	VEXTRACTF64X4 $1, Z0, Y1
	VADDPS        Y1, Y0, Y0
	VEXTRACTF128  $1, Y0, X1
	VADDPS        X1, X0, X0
	VMOVHLPS      X0, X0, X1
	VADDPS        X1, X0, X0
	VMOVSHDUP     X0, X1
	VADDSS        X1, X0, X0
	VMOVSS        X0, (R9)(R8*4)
	ADDQ          $64, R13
	INCQ          R8
	CMPQ          R8, BX
	JNE           row

	MOVQ AX, DX
	SUBQ -8(SI)(R8*8), DX
	SHLQ $6, R8
	SUBQ R8, R13
	SUBQ R13, CX
	SUBQ $64, R8
	SUBQ R8, CX
	ADDQ CX, DI
	ADDQ $128, R9
	DECQ R10
	JNZ  group
	VZEROUPPER
	RET

// Inputs 2k and 2k+1 of 16 outputs go to a row of a tile.
#define PAIR(from, at) \
	VMOVDQU32 from(SI), Z0; \
	VPSRLD    $16, Z0, Z0; \
	VPANDD    (from+128)(SI), Z31, Z1; \
	VPORD     Z1, Z0, Z0; \
	VMOVDQU32 Z0, at(DI)

// func pair(to *uint16, panel *float32, steps int)
TEXT ·pair(SB), NOSPLIT, $0-24
	MOVQ         to+0(FP), DI
	MOVQ         panel+8(FP), SI
	MOVQ         steps+16(FP), R10
	VPBROADCASTD mask<>(SB), Z31

step:
	MOVQ $16, R11

row:
	PAIR(0, 0)
	PAIR(64, 1024)
	ADDQ $256, SI
	ADDQ $64, DI
	DECQ R11
	JNZ  row
	ADDQ $1024, DI
	DECQ R10
	JNZ  step
	VZEROUPPER
	RET

// func center(sides *float32, groups int, middle float32)
TEXT ·center(SB), NOSPLIT, $0-20
	MOVQ         sides+0(FP), SI
	MOVQ         groups+8(FP), R10
	VBROADCASTSS middle+16(FP), Z3

group:
	VMOVUPS     128(SI), Z0
	VMOVUPS     192(SI), Z1
	VFMADD231PS (SI), Z3, Z0
	VFMADD231PS 64(SI), Z3, Z1
	VMOVUPS     Z0, 128(SI)
	VMOVUPS     Z1, 192(SI)
	ADDQ        $256, SI
	DECQ        R10
	JNZ         group
	VZEROUPPER
	RET

// func pair4(to *uint16, words *float32, steps int)
TEXT ·pair4(SB), NOSPLIT, $0-24
	MOVQ         to+0(FP), BX
	MOVQ         words+8(FP), R11
	MOVQ         steps+16(FP), R10
	XORQ         R12, R12
	VMOVDQU64    middle4<>(SB), Z12
	VPBROADCASTD mask<>(SB), Z13

step:
	TILE4(0, 0)
	ADDQ $256, R12
	ADDQ $2048, BX
	DECQ R10
	JNZ  step
	VZEROUPPER
	RET
