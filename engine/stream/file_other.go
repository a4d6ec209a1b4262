//go:build !linux && !darwin

package stream

import "os"

func openDirect(string) (*os.File, error) { return nil, errNoDirect }

func refused(error) bool { return false }

func aligned([]byte, int64) bool { return false }

func randomReads(*os.File) {}
