//go:build !linux && !darwin

package stream

import "os"

func openDirect(string) (*os.File, error) { return nil, errNoDirect }

func refused(error) bool { return false }

func aligned([]byte, int64) bool { return false }

func randomReads(*os.File) {}

// readCached: the system does not tell what it holds in memory.
func readCached(*os.File, []byte, int64) bool { return false }
