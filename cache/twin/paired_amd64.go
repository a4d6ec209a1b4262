package twin

import (
	"sync"

	"golang.org/x/sys/cpu"
)

// Paired says whether this processor adds to two hashes at once.
func Paired() bool { return paired() }

var paired = sync.OnceValue(func() bool { return cpu.X86.HasSSSE3 && cpu.X86.HasSSE41 && hasSHA() })
