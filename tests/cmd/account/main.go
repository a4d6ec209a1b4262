// Command account reads the output of `go test -json`, shows what failed and what a test printed there,
// and counts: a test that skipped fails the run unless allowed.txt lists it with a reason. The counts are
// of top-level tests, written "N passed, M failed, K skipped": added up in the file -total, or printed
// last. It exits 1 unless the run is good. Start reading at run.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
)

//go:embed allowed.txt
var allowedText string

func main() {
	total := flag.String("total", "", "add the counts to those in this `file` instead of printing them")
	flag.Parse()
	good, err := run(os.Stdin, os.Stdout, *total)
	if err != nil {
		fmt.Fprintln(os.Stderr, "account:", err)
		os.Exit(2)
	}
	if !good {
		os.Exit(1)
	}
}

// run accounts for one stream; the counts of earlier streams lie in the file total, if it is named.
func run(in io.Reader, out io.Writer, total string) (good bool, err error) {
	allowed, err := parseAllowed(allowedText)
	if err != nil {
		return false, err
	}
	tally, err := read(in, out)
	if err != nil {
		return false, err
	}
	good = tally.judge(out, allowed)
	if total != "" {
		return good, addTotal(total, tally.counts())
	}
	fmt.Fprintln(out, tally.counts())
	return good, nil
}
