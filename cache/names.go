package cache

import "strings"

// Bounds on names, so that every store can hold them: S3 takes 1024 bytes, file systems 255 an element.
const (
	maxName    = 1024
	maxElement = 255
)

// CheckName refuses, as ErrName, what is not a relative slash path of [a-z A-Z 0-9 . _ -] elements, or has an
// element "." or "..". Every Store calls it before it touches anything.
func CheckName(name string) error {
	if len(name) > maxName {
		return refuse(ErrName, "object name %.40q… of %d bytes is longer than %d", name, len(name), maxName)
	}
	for element := range strings.SplitSeq(name, "/") {
		if !validElement(element) {
			return refuse(ErrName, "object name %q is not allowed: a name is elements of letters, digits, '.', '_' and '-' between slashes, "+
				"none of them empty, \".\" or \"..\"", name)
		}
	}
	return nil
}

// CheckPrefix is CheckName for the beginning of a name, which may be empty and may end anywhere.
func CheckPrefix(prefix string) error {
	if folder, last, ok := cutLast(prefix); ok {
		if err := CheckName(folder); err != nil {
			return err
		}
		prefix = last
	}
	if len(prefix) > maxElement || strings.IndexFunc(prefix, notNameRune) >= 0 {
		return refuse(ErrName, "object name prefix %.80q is not allowed: names have letters, digits, '.', '_', '-' and slashes", prefix)
	}
	return nil
}

func validElement(e string) bool {
	return e != "" && e != "." && e != ".." && len(e) <= maxElement && strings.IndexFunc(e, notNameRune) < 0
}

// notNameRune is true of what no name has.
func notNameRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
}

// cutLast splits at the last slash.
func cutLast(name string) (folder, last string, ok bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}
