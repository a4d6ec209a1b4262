package oracle

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Tolerance is how far a number may be off: for logits as it is, for other tensors times max(1, their RMS).
const Tolerance = 2e-4

// Line is one compared quantity. Numbers have a Diff and a Limit, choices count what is Wrong.
type Line struct {
	Name     string  `json:"name"`
	Compared int     `json:"compared"` // numbers or choices
	Diff     float64 `json:"diff"`     // largest absolute difference, or relative L2
	Limit    float64 `json:"limit"`    // what Diff may be; 0 for choices
	Wrong    int     `json:"wrong"`
	Allowed  int     `json:"allowed,omitempty"` // choices that may differ where products are half-staged
	First    string  `json:"first,omitempty"`   // where the first wrong choice, or the largest difference past the limit, is
}

// OK says that the line is within its tolerance and compared something.
func (l Line) OK() bool {
	return l.Compared > 0 && l.Wrong <= l.Allowed && !math.IsNaN(l.Diff) && l.Diff <= l.Limit
}

// Report is a whole comparison.
type Report struct {
	Lines   []Line   `json:"lines"`
	Forced  []Line   `json:"forced,omitempty"` // of a run held to the choices of an exact one, against that
	Skipped []string `json:"not_compared"`
}

// OK says that every line is.
func (r Report) OK() bool {
	for _, l := range slices.Concat(r.Lines, r.Forced) {
		if !l.OK() {
			return false
		}
	}
	return len(r.Lines) > 0
}

// Print writes the figures as a table.
func (r Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "quantity\tcompared\tmax diff\tallowed\t")
	printLines(t, r.Lines)
	if len(r.Forced) > 0 {
		fmt.Fprintln(t, "\nwith the choices of an exact run forced\tcompared\tmax diff\tallowed\t")
		printLines(t, r.Forced)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(t, "not compared: %s\n", s)
	}
	return t.Flush()
}

func printLines(t io.Writer, lines []Line) {
	for _, l := range lines {
		verdict := "ok"
		if !l.OK() {
			verdict = "WRONG " + l.First
		}
		if l.Limit == 0 {
			fmt.Fprintf(t, "%s\t%d\t%d differ\t%d\t%s\n", l.Name, l.Compared, l.Wrong, l.Allowed, verdict)
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%.1e\t%.1e\t%s\n", l.Name, l.Compared, l.Diff, l.Limit, verdict)
	}
}

// gauge collects one line.
type gauge struct {
	line   Line
	scale  float64 // sum of squares of what is expected
	off    float64 // sum of squares of the differences
	strict bool    // the limit does not grow with the RMS
	text   bool    // chosen tokens, each after the ones before
}

// numbers compares got with want; where names the place for the report.
func (g *gauge) numbers(got, want []float32, where string) {
	if len(got) != len(want) {
		g.wrong(fmt.Sprintf("%s: %d numbers for %d", where, len(got), len(want)))
		return
	}
	for i := range want {
		g.scale += float64(want[i]) * float64(want[i])
		d := math.Abs(float64(got[i]) - float64(want[i]))
		g.off += d * d
		if d > g.line.Diff || math.IsNaN(d) {
			g.line.Diff, g.line.First = d, fmt.Sprintf("%s[%d]: %v for %v", where, i, got[i], want[i])
		}
	}
	g.line.Compared += len(want)
}

// choices compares what was chosen.
func choices[T int32 | int64](g *gauge, got []T, want []int64, where string) {
	g.line.Compared += len(want)
	if len(got) != len(want) {
		g.wrong(fmt.Sprintf("%s: %d choices for %d", where, len(got), len(want)))
		return
	}
	for i := range want {
		if int64(got[i]) != want[i] {
			g.wrong(fmt.Sprintf("%s[%d]: %d for %d", where, i, got[i], want[i]))
		}
	}
}

func (g *gauge) wrong(where string) {
	if g.line.Wrong == 0 {
		g.line.First = where
	}
	g.line.Wrong++
}

// flips is the share of choices that half staging may turn over: those whose margin it does not keep.
const flips = 0.03

// done finishes a line. bound is of the relative L2 of numbers, or 0 for Tolerance of every one of them.
func (g *gauge) done(bound float64, exact bool) Line {
	numbers := g.line.Diff > 0 || g.scale > 0
	switch {
	case bound > 0 && numbers:
		g.line.Limit, g.line.Diff = bound, math.Sqrt(g.off/max(g.scale, 1e-30))
		return g.line
	case bound > 0 && g.text:
		if !exact { // one close step, and every later one differs
			g.line.Allowed = g.line.Compared
		}
		return g.line
	case bound > 0:
		g.line.Allowed = int(flips * float64(g.line.Compared))
		return g.line
	case !numbers:
		return g.line
	}
	g.line.Limit = Tolerance
	if !g.strict && g.line.Compared > 0 {
		g.line.Limit *= max(1, math.Sqrt(g.scale/float64(g.line.Compared)))
	}
	return g.line
}
