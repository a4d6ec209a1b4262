package bench

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// The picture: its size, and the margins of the plot within it.
const (
	svgWidth, svgHeight = 720, 420
	svgLeft, svgRight   = 70, 150
	svgTop, svgBottom   = 40, 50
)

// WriteSVG plots the rows that are rates against their length, or against their position where lengths are all the
// same: a line for each series, a bar from the slowest sample to the fastest, lengths on a scale of doublings.
func (r Report) WriteSVG(w io.Writer) error {
	p := newPlot(r)
	if len(p.lines) == 0 {
		return fmt.Errorf("plot: the report has no rates by length")
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", svgWidth, svgHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", svgWidth, svgHeight)
	p.text(&b, svgLeft, 22, "start", fmt.Sprintf("%s of %s, %s, %d workers", r.Kind, r.Model.Name, r.Host.CPU, r.Ceiling.Workers))
	p.axes(&b)
	for i, l := range p.lines {
		p.line(&b, i, l)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// plotLine is one series, by x.
type plotLine struct {
	name   string
	points []plotPoint
}

type plotPoint struct{ x, y, low, high float64 }

type plot struct {
	lines      []plotLine
	ticks      []float64 // every x, ascending
	label      string    // of the x axis
	left, span float64   // in doublings
	top        float64   // y of the upper edge
}

func newPlot(r Report) *plot {
	p := &plot{label: "tokens read", left: math.Inf(1)}
	rates := slices.DeleteFunc(slices.Clone(r.Rows), func(r Row) bool { return r.Unit != TokensPerSecond })
	byPosition := slices.ContainsFunc(rates, func(r Row) bool { return r.Position > 0 })
	if byPosition {
		p.label = "position, tokens"
	}
	for _, row := range rates {
		x := row.Length
		if byPosition {
			x = row.Position
		}
		low, high := row.Range()
		if x < 1 {
			continue
		}
		at := slices.IndexFunc(p.lines, func(l plotLine) bool { return l.name == row.Series })
		if at < 0 {
			at, p.lines = len(p.lines), append(p.lines, plotLine{name: row.Series})
		}
		p.lines[at].points = append(p.lines[at].points, plotPoint{float64(x), row.Median(), low, high})
		p.ticks, p.top = append(p.ticks, float64(x)), max(p.top, high)
	}
	for i := range p.lines {
		slices.SortFunc(p.lines[i].points, func(a, b plotPoint) int { return cmp.Compare(a.x, b.x) })
	}
	slices.Sort(p.ticks)
	p.ticks = slices.Compact(p.ticks)
	if len(p.ticks) > 0 {
		p.left = math.Log2(p.ticks[0])
		p.span = max(1, math.Log2(p.ticks[len(p.ticks)-1])-p.left)
	}
	p.top = roundUp(p.top)
	return p
}

// roundUp is the next of 1, 2, 5, 10, 20, ... times a power of ten.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	scale := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*scale {
			return step * scale
		}
	}
	return 10 * scale
}

func (p *plot) x(v float64) float64 {
	return svgLeft + (math.Log2(v)-p.left)/p.span*(svgWidth-svgLeft-svgRight)
}

func (p *plot) y(v float64) float64 {
	return svgHeight - svgBottom - v/p.top*(svgHeight-svgTop-svgBottom)
}

func (p *plot) text(b *strings.Builder, x, y float64, anchor, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(b, []byte(text)) // a strings.Builder takes everything
	b.WriteString("</text>\n")
}

func (p *plot) axes(b *strings.Builder) {
	const grid = 5
	for i := range grid + 1 {
		v := p.top * float64(i) / grid
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", svgLeft, p.y(v), svgWidth-svgRight)
		p.text(b, svgLeft-8, p.y(v)+4, "end", fmt.Sprintf("%.4g", v))
	}
	for _, x := range p.ticks {
		fmt.Fprintf(b, `<path d="M%.1f %dv5" stroke="black"/>`+"\n", p.x(x), svgHeight-svgBottom)
		p.text(b, p.x(x), svgHeight-svgBottom+18, "middle", fmt.Sprintf("%.0f", x))
	}
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="black"/>`+"\n", svgLeft, svgTop, svgHeight-svgBottom, svgWidth-svgRight)
	p.text(b, (svgWidth+svgLeft-svgRight)/2, svgHeight-10, "middle", p.label)
	p.text(b, 8, svgTop-6, "start", TokensPerSecond)
}

// line draws one series with its name beside it.
func (p *plot) line(b *strings.Builder, i int, l plotLine) {
	colours := [...]string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf"}
	colour := colours[i%len(colours)]
	var path strings.Builder
	for k, pt := range l.points {
		step := "L"
		if k == 0 {
			step = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", step, p.x(pt.x), p.y(pt.y))
		fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke="%s" stroke-opacity="0.5" stroke-width="3"/>`+"\n", p.x(pt.x), p.y(pt.low), p.y(pt.high), colour)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", p.x(pt.x), p.y(pt.y), colour)
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), colour)
	at := float64(svgTop + 18*i)
	fmt.Fprintf(b, `<path d="M%d %.1fh18" stroke="%s" stroke-width="2"/>`+"\n", svgWidth-svgRight+12, at, colour)
	p.text(b, svgWidth-svgRight+36, at+4, "start", l.name)
}
