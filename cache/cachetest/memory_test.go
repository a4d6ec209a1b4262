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

func TestSpool(t *testing.T) {
	cachetest.RunStager(t, func(*testing.T) (cache.Stager, cache.Store) {
		m := cachetest.NewMemory()
		return cachetest.NewSpool(m, 4<<20), m
	})
}
