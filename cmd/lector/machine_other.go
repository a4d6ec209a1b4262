//go:build !linux && !darwin

package main

// machineMemory is the machine's memory in bytes, 0 where it cannot be told.
func machineMemory() int64 { return 0 }
