//go:build !unix

package weights

import "os"

// mapFile reads the whole file where there is no mapping.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	data, err = os.ReadFile(path)
	return data, func() error { return nil }, err
}

// dropPages does nothing where files are not mapped.
func dropPages(_, _ []byte) {}
