package disk

import "io"

// earlyBytes is how much is written before the system is told to begin with it: enough for large requests to the disk.
const earlyBytes = 1 << 20

// Early is a file that is written from its start and synced at its end: the disk is at work while the rest is written.
type Early struct {
	file    io.Writer
	fd      uintptr
	started bool  // there is a descriptor to start
	at, old int64 // written, and of that on its way
}

// NewEarly wraps a file; one that is not the system's own is only written.
func NewEarly(file io.Writer) *Early {
	e := &Early{file: file}
	if f, ok := file.(interface{ Fd() uintptr }); ok {
		e.fd, e.started = f.Fd(), true
	}
	return e
}

// Write implements io.Writer.
func (e *Early) Write(p []byte) (int, error) {
	n, err := e.file.Write(p)
	e.at += int64(n)
	if e.at-e.old >= earlyBytes {
		e.Start()
	}
	return n, err
}

// Start has the system begin with all that was written so far.
func (e *Early) Start() {
	if e.started && e.at > e.old {
		StartWriting(e.fd, e.old, e.at-e.old)
		e.old = e.at
	}
}
