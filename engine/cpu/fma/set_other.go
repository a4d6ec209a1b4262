//go:build !amd64 && !arm64

package fma

// Widest is plain Go: there are no kernels for this processor.
func Widest() Set { return Plain }

// Sets are those that this processor can run.
func Sets() []Set { return []Set{Plain} }

// The rest stands for the kernels of other processors; nothing calls it while Widest is Plain.

func (s Set) rows(n int) int             { return 1 }
func (s Set) columns(rows, j, n int) int { return 16 }

func (s Set) dots(c, x Rows, panel []float32, t Tile) { dotsPlain(c, x, panel, t) }
func (s Set) transpose32(dst Rows, src stored)        { columns32(dst, src) }
func (s Set) transpose16(dst Rows, src stored)        { columns16(dst, src) }
func (s Set) unpack(panel []float32, w codes)         { panic("fma: no kernels for this processor") }
func (s Set) few(halves, rows int, k fewCall)         { panic("fma: no kernels for this processor") }
func (s Set) fewTiles(rows int, c, x Rows, k tilesCall) {
	panic("fma: no kernels for this processor")
}
func (s Set) transposeRows(dst, src Rows, rows, n int) bool       { return false }
func (s Set) near(data []byte)                                    {}
func (s Set) widenRows(dst Rows, data []byte, across, n int) bool { return false }
func (s Set) transposeListed(dst Rows, src Listed, list []int32, n int) {
	panic("fma: no kernels for listed rows")
}
func (s Set) dotsListed(c, x Rows, values Listed, t Tile) { panic("fma: no kernels for listed rows") }
