// Command generate writes the Go side of the parameter headers; `go generate ./shaders` runs it there.
package main

import (
	"fmt"
	"os"

	"lector/shaders/params"
)

func main() {
	for _, f := range []struct{ header, out, prefix string }{
		{"params.h", "params_gen.go", "params"},
		{"params_blocks.h", "params_blocks_gen.go", "blocks"},
	} {
		if err := write(f.header, f.out, f.prefix); err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

func write(header, out, prefix string) error {
	text, err := os.ReadFile(header)
	if err != nil {
		return fmt.Errorf("read header: %w", err)
	}
	h, err := params.Parse(header, string(text))
	if err != nil {
		return fmt.Errorf("parse header: %w", err)
	}
	code, err := h.Go("shaders", prefix)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, code, 0o644); err != nil {
		return fmt.Errorf("write Go side: %w", err)
	}
	return nil
}
