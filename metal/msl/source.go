package msl

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// Header is text that stands before a rewritten body.
type Header struct{ Name, Text string }

//go:embed msl_base.h
var baseText string

// BaseHeader has Metal's numbers and vectors. All targets share it, so that a kernel means the same on each.
func BaseHeader() Header { return Header{Name: "msl_base.h", Text: baseText} }

var ownIncludes = regexp.MustCompile(`(?m)^#(include ".*"|pragma once)$`)

// Prelude defines a target and writes headers in order, so that the compiler reads no file of ours.
func Prelude(target string, headers ...Header) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#define %s 1\n", target)
	for _, h := range headers {
		fmt.Fprintf(&b, "#line 1 %q\n%s\n", h.Name, ownIncludes.ReplaceAllString(h.Text, ""))
	}
	return b.String()
}

// includes finds the lines that ask for a header of Metal. All of them are one header here, and it is always there.
var includes = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*<metal_\w+>`)

// Marked is a source as the preprocessor gets it: it knows its name, and asks for no header.
func Marked(name, text string) string {
	return fmt.Sprintf("#line 1 %q\n%s", name, includes.ReplaceAllString(text, ""))
}

// PreprocessorFlags let clang preprocess what Marked returns from its standard input, for Rewrite.
func PreprocessorFlags() []string {
	return []string{"-E", "-x", "c++", "-std=c++17", "-nostdinc", "-undef", "-D__METAL_VERSION__=310", "-D__METAL__=1", "-"}
}
