// Command gguf writes a checkpoint of plain numbers under the released names as a GGUF file, so that llama.cpp runs the
// same model: for lector bench peer, and nothing else. What llama.cpp needs of the family is in model.go.
//
//	go run ./tests/peer/gguf [-type q4_0|f32] MODEL OUT.gguf
//
// It refuses quantised checkpoints, a draft head (which it leaves out with a word), and shapes that llama.cpp does not
// take: one n-gram embedding as wide as the model, on a DeltaNet layer, and key heads as wide as value heads.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"lector/engine/weights"
)

func main() {
	form := flag.String("type", "q4_0", "how matrices are stored: q4_0 or f32")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: gguf [-type q4_0|f32] MODEL OUT.gguf")
		os.Exit(2)
	}
	if err := convert(flag.Arg(0), flag.Arg(1), *form); err != nil {
		fmt.Fprintln(os.Stderr, "gguf:", err)
		os.Exit(1)
	}
}

func convert(from, to, form string) error {
	kinds := map[string]kind{"q4_0": q40, "f32": f32}
	k, ok := kinds[form]
	if !ok {
		return fmt.Errorf("type %q: it must be q4_0 or f32", form)
	}
	c, err := weights.Open(from)
	if err != nil {
		return err
	}
	defer c.Close()
	f, err := describe(c, k)
	if err != nil {
		return fmt.Errorf("convert %s: %w", from, err)
	}
	if c.HasMTP() {
		fmt.Fprintln(os.Stderr, "the draft head is left out")
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(f.write(out), out.Close())
}
