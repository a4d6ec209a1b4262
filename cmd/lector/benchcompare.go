package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lector/engine/bench"
)

func newBenchCompare(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "compare A.json B.json",
		Short: "Compare two reports row by row",
		Long: "compare matches the rows of two reports by name and prints how many times as fast B is: above 1 B is faster. Where\n" +
			"the samples' ranges overlap the difference may be noise, and the row says so.",
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return a.benchCompare(args[0], args[1], asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return c
}

func (a *app) benchCompare(fileA, fileB string, asJSON bool) error {
	first, err := readReport(fileA)
	if err != nil {
		return err
	}
	second, err := readReport(fileB)
	if err != nil {
		return err
	}
	c := bench.Compare(first, second)
	if len(c.Deltas) == 0 {
		return badInput(fmt.Errorf("%s and %s have no row in common", fileA, fileB))
	}
	if asJSON {
		return json.NewEncoder(a.out).Encode(c)
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "row\tunit\tA\tB\tspeed of B\t")
	for _, d := range c.Deltas {
		note := ""
		if d.Overlaps {
			note = "within noise: the ranges overlap"
		}
		fmt.Fprintf(t, "%s\t%s\t%.4g\t%.4g\t%.2f x\t%s\n", d.Name, d.Unit, d.A, d.B, d.Speed, note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range c.Notes {
		a.note("differs: %s", n)
	}
	for _, only := range []struct {
		file string
		rows []string
	}{{fileA, c.OnlyA}, {fileB, c.OnlyB}} {
		if len(only.rows) > 0 {
			a.note("only in %s: %s", only.file, strings.Join(only.rows, ", "))
		}
	}
	return nil
}
