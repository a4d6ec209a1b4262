package cachetest_test

import (
	"testing"

	"lector/cache"
	"lector/cache/cachetest"
)

func TestMemory(t *testing.T) {
	cachetest.Run(t, func(*testing.T) cache.Store { return cachetest.NewMemory() })
}

// Without rules and before its end, a wrapper is the store it wraps.
func TestWrappers(t *testing.T) {
	cachetest.Run(t, func(*testing.T) cache.Store {
		return cachetest.NewCrash(cachetest.NewFaulty(cachetest.NewMemory()), -1)
	})
}
