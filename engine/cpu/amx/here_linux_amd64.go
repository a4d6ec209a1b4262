package amx

import (
	"sync"
	"syscall"

	"golang.org/x/sys/cpu"
)

// Here says that the processor has tiles and the system lets this process use them. Linux wants to be asked, since a
// thread with tiles needs more room where its registers are kept.
var Here = sync.OnceValue(func() bool {
	const request, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, the state's number
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 || !cpu.X86.HasAVX512F || !cpu.X86.HasAVX512BW {
		return false
	}
	_, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, request, tileData, 0)
	return err == 0
})
