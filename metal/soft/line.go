//go:build linux && (amd64 || arm64)

package soft

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// lineAt is the source line of an instruction of an object, as "file:line", or "" where that is not known.
func lineAt(path string, place uint64) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := f.DWARF()
	if err != nil {
		return ""
	}
	at, err := findLine(data, place)
	if err != nil {
		return ""
	}
	return at
}

func findLine(data *dwarf.Data, place uint64) (string, error) {
	units := data.Reader()
	for {
		unit, err := units.Next()
		if err != nil {
			return "", err
		}
		if unit == nil {
			return "", errors.New("no unit has the place")
		}
		units.SkipChildren()
		lines, err := data.LineReader(unit)
		if err != nil {
			return "", err
		}
		if lines == nil {
			continue
		}
		var entry dwarf.LineEntry
		switch err := lines.SeekPC(place, &entry); {
		case errors.Is(err, dwarf.ErrUnknownPC), errors.Is(err, io.EOF):
			continue
		case err != nil:
			return "", err
		case entry.File == nil:
			continue
		}
		return fmt.Sprintf("%s:%d", filepath.Base(entry.File.Name), entry.Line), nil
	}
}
