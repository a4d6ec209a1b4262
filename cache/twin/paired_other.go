//go:build !amd64

package twin

// Paired is false: there is no kernel for this processor.
func Paired() bool { return false }

// The rest stands for the kernels of another processor; nothing calls it.

func blocks1(h *[8]uint32, p *byte, n int)         { panic("twin: no kernel for this processor") }
func blocks2(h, h2 *[8]uint32, p, p2 *byte, n int) { panic("twin: no kernel for this processor") }
