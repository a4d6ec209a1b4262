package cache_test

import (
	"syscall"
	"testing"
)

func cpu(b *testing.B) func() {
	get := func() float64 {
		var r syscall.Rusage
		syscall.Getrusage(0, &r)
		return float64(r.Utime.Sec+r.Stime.Sec)*1e3 + float64(r.Utime.Usec+r.Stime.Usec)/1e3
	}
	at := get()
	return func() { b.ReportMetric((get()-at)/float64(b.N), "cpu-ms/op") }
}
