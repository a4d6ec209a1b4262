package soft

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"lector/metal"
	"lector/metal/msl"
)

//go:embed rt/*.h rt/*.cpp
var runtimeFiles embed.FS

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
	text, err := clang(compiler, msl.Marked(source.Name, source.Text), msl.PreprocessorFlags()...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", metal.ErrCompile, source.Name, err)
	}
	unit, err := msl.Rewrite(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", metal.ErrCompile, source.Name, err)
	}
	return unit, nil
}

// withHeaders puts the base and headers of rt before a rewritten body.
func withHeaders(target string, body string, names ...string) (string, error) {
	headers := []msl.Header{msl.BaseHeader()}
	for _, name := range names {
		text, err := runtimeFiles.ReadFile("rt/" + name)
		if err != nil {
			return "", err
		}
		headers = append(headers, msl.Header{Name: name, Text: string(text)})
	}
	return msl.Prelude(target, headers...) + body, nil
}

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
	text, err := withHeaders("MSL_CHECK", unit.Body+msl.CheckLaunchers(unit), "msl_check.h")
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
