package shaders

import (
	"regexp"
	"slices"
	"strings"
)

// Kernels lists the names of all kernels, sorted, as the sources declare them: plain ones, and the instances of
// templates by their host names.
func Kernels() []string {
	var names []string
	for _, library := range Libraries() {
		text, err := Source(library)
		if err != nil {
			panic(err) // the embedded files are whole
		}
		names = append(names, declared(library, text)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// declared finds the kernels of a library: a function that is no template, a host name, or the first argument of a
// macro that makes instances.
func declared(library, text string) []string {
	kernel := regexp.MustCompile(`^(?:(?:\[\[\w+\(\d+\)\]\] )?kernel void |.*host_name\("|[A-Z_]+\()(` + library + `_\w+)`)
	var names []string
	before := ""
	for line := range strings.Lines(text) {
		if m := kernel.FindStringSubmatch(line); m != nil && !strings.HasPrefix(before, "template <") {
			names = append(names, m[1])
		}
		before = line
	}
	return names
}
