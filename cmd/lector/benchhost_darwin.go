package main

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// processor names the CPU.
func processor() string {
	name, err := unix.Sysctl("machdep.cpu.brand_string")
	if err != nil {
		return runtime.GOARCH
	}
	return name
}

// loadAverage is not told on this system.
func loadAverage() string { return "" }
