package soft

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"lector/metal"
	"lector/metal/msl"
)

//go:embed rt/*.h rt/*.cpp
var runtimeFiles embed.FS

// includes finds the lines that ask for a header of Metal. All of them are one header here, and it is always there.
var includes = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*<metal_\w+>`)

// clang runs the compiler; its messages become the error.
func clang(compiler string, input string, args ...string) (string, error) {
	cmd := exec.Command(compiler, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && messages.Len() > 0 {
		return "", errors.New(strings.TrimSpace(messages.String()))
	}
	if err != nil {
		return "", fmt.Errorf("run %s: %w", compiler, err)
	}
	return out.String(), nil
}

// rewrite preprocesses a source and rewrites it. Its errors are metal.ErrCompile.
func rewrite(compiler string, source metal.Source) (*msl.Unit, error) {
	marked := fmt.Sprintf("#line 1 %q\n%s", source.Name, includes.ReplaceAllString(source.Text, ""))
	text, err := clang(compiler, marked, "-E", "-x", "c++", "-std=c++17", "-nostdinc", "-undef",
		"-D__METAL_VERSION__=310", "-D__METAL__=1", "-")
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", metal.ErrCompile, source.Name, err)
	}
	unit, err := msl.Rewrite(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", metal.ErrCompile, source.Name, err)
	}
	return unit, nil
}

// withHeaders puts headers of rt before a rewritten body, so that the compiler reads no file of ours.
func withHeaders(target string, body string, headers ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "#define %s 1\n", target)
	for _, h := range headers {
		text, err := runtimeFiles.ReadFile("rt/" + h)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "#line 1 %q\n%s\n", h, ownIncludes.ReplaceAll(text, nil))
	}
	b.WriteString(body)
	return b.String(), nil
}

var ownIncludes = regexp.MustCompile(`(?m)^#(include ".*"|pragma once)$`)

// quiet are warnings about what rewriting leaves behind.
func quiet() []string {
	return []string{"-Wno-unknown-attributes", "-Wno-duplicate-decl-specifier", "-Wno-unused-function", "-Wno-unused-variable",
		"-Wno-undefined-inline", "-Wno-undefined-internal", "-Wno-unused-value"}
}

// Check type-checks a source with Metal's address spaces kept apart, which compiling for the processor does
// not: it refuses a threadgroup pointer in a device pointer, and function pointers. Every kernel and template
// instantiation is looked at. What passes may still displease Apple's compiler.
// The error is metal.ErrCompile with the compiler's lines, or metal.ErrUnavailable without a compiler.
func Check(source metal.Source) error {
	compiler, err := findCompiler("")
	if err != nil {
		return err
	}
	unit, err := rewrite(compiler, source)
	if err != nil {
		return err
	}
	text, err := withHeaders("MSL_CHECK", unit.Body+msl.CheckLaunchers(unit), "msl_base.h", "msl_check.h")
	if err != nil {
		return err
	}
	args := append([]string{"-x", "clcpp", "-cl-std=clc++2021", "-cl-single-precision-constant", "-cl-no-stdinc",
		"-target", "spir64", "-nostdinc", "-fsyntax-only", "-"}, quiet()...)
	if _, err := clang(compiler, text, args...); err != nil {
		return fmt.Errorf("%w: %s: %w", metal.ErrCompile, source.Name, err)
	}
	return nil
}
