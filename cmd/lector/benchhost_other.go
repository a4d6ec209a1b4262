//go:build !linux && !darwin

package main

import "runtime"

// processor names the CPU.
func processor() string { return runtime.GOARCH }

// loadAverage is not told on this system.
func loadAverage() string { return "" }
