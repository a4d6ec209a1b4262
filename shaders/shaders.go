package shaders

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

//go:embed params.h params_blocks.h *.metal common/*.metal
var files embed.FS

// common lists the libraries that are made of several files.
func common() map[string][]string {
	return map[string][]string{
		"dense":  {"common/embed.metal", "common/norm.metal", "common/element.metal", "common/rope.metal", "common/conv.metal"},
		"linear": {"common/gemm.metal", "common/matvec.metal"},
	}
}

// Libraries lists the names of all libraries, sorted.
func Libraries() []string {
	var names []string
	for name := range common() {
		names = append(names, name)
	}
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the embedded files always list
	}
	for _, e := range entries {
		if path.Ext(e.Name()) == ".metal" {
			names = append(names, strings.TrimSuffix(e.Name(), ".metal"))
		}
	}
	slices.Sort(names)
	return names
}

// Library is the name of the library that holds a kernel: what stands before the first underscore of its name.
func Library(kernel string) string {
	name, _, _ := strings.Cut(kernel, "_")
	return name
}

// Source assembles the text of a library.
func Source(library string) (string, error) {
	parts, ok := common()[library]
	if !ok {
		parts = []string{library + ".metal"}
	}
	var out strings.Builder
	for _, name := range []string{"params.h", "params_blocks.h"} {
		if err := appendFile(&out, name); err != nil {
			return "", err
		}
	}
	out.WriteString("#line 1 \"asserts\"\n" + paramsAsserts + blocksAsserts)
	for _, name := range slices.Concat([]string{"common/prelude.metal", "common/stored.metal", "common/tile.metal", "common/vector.metal"}, parts) {
		if err := appendFile(&out, name); err != nil {
			return "", fmt.Errorf("assemble kernel library %q: %w", library, err)
		}
	}
	return "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n" + out.String(), nil
}

func appendFile(out *strings.Builder, name string) error {
	text, err := files.ReadFile(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "#line 1 %q\n%s\n", name, strings.ReplaceAll(string(text), "#pragma once", ""))
	return nil
}
