package main

import (
	"runtime"
	"runtime/debug"

	"lector/engine/bench"
)

// threads is how many cores the backend uses.
func (a *app) threads() int {
	if a.workers > 0 {
		return a.workers
	}
	return runtime.GOMAXPROCS(0)
}

// thisHost describes the machine and the program.
func thisHost() bench.Host {
	return bench.Host{
		CPU: processor(), Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
		Commit: commit(), Load: loadAverage(),
	}
}

// commit is what the program was built from, as far as the build knows.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}
