package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"lector/engine/weights"
	"lector/engine/weights/pack"
)

// packFlags are the flags of model pack.
type packFlags struct {
	out           string
	bits, experts string
	group         int
	norms         string
}

func newModelPack(a *app) *cobra.Command {
	var f packFlags
	c := &cobra.Command{
		Use:   "pack SRC",
		Short: "Pack a checkpoint into a store that runs from within a memory budget",
		Long: `Pack a checkpoint into a store that runs from within a memory budget.

What is quantised already is copied bit for bit. The rest is copied too, or quantised by MLX's affine rule with
--bits; the router, norms and other small tensors always stay as they are. An interrupted run goes on where it was.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.modelPack(c.Context(), args[0], f) },
	}
	c.Flags().StringVar(&f.out, "out", "", "`folder` of the store (default: SRC-packed)")
	c.Flags().StringVar(&f.bits, "bits", "keep", "bits of a weight: keep, 2, 3, 4, 6 or 8")
	c.Flags().StringVar(&f.experts, "experts-bits", "", "the same for the routed experts (default: as --bits)")
	c.Flags().IntVar(&f.group, "group", 64, "weights that share a scale: 32, 64 or 128")
	c.Flags().StringVar(&f.norms, "norms", "", "what norms store where their values do not tell: folded or centred")
	return c
}

// settings reads the flags.
func (f packFlags) settings() (s pack.Settings, err error) {
	if f.experts == "" {
		f.experts = f.bits
	}
	s.Group = f.group
	for _, flag := range []struct {
		name, value string
		to          *int
	}{{"--bits", f.bits, &s.Bits}, {"--experts-bits", f.experts, &s.ExpertsBits}} {
		if flag.value == "keep" {
			continue
		}
		if *flag.to, err = strconv.Atoi(flag.value); err != nil || *flag.to == pack.Keep {
			return s, badInput(fmt.Errorf("%s %q: it must be keep, 2, 3, 4, 6 or 8", flag.name, flag.value))
		}
	}
	return s, badInput(s.Check())
}

func (a *app) modelPack(ctx context.Context, source string, f packFlags) error {
	settings, err := f.settings()
	if err != nil {
		return err
	}
	source = filepath.Clean(source)
	if f.out == "" {
		f.out = source + "-packed"
	}
	c, err := weights.OpenWith(source, weights.Options{Norms: f.norms})
	if err != nil {
		return badInput(err)
	}
	defer c.Close()
	bar := &byteProgress{app: a, what: "packing"}
	report, err := pack.Run(ctx, c, f.out, pack.Options{Settings: settings, Progress: bar.show, Note: func(text string) { a.note("%s", text) }})
	bar.end()
	if err != nil {
		if ctx.Err() != nil {
			a.note("stopped: the same command goes on")
		}
		return err
	}
	return a.tellPacked(f.out, report)
}

// tellPacked says what there is now.
func (a *app) tellPacked(dir string, report pack.Report) error {
	p, err := weights.OpenPacked(dir)
	if err != nil {
		return err
	}
	defer p.Close()
	if report.Already {
		a.note("%s is packed already; lector model verify checks it", dir)
	} else if report.Reused > 0 {
		a.note("%s of it were there from an earlier run", size(report.Reused))
	}
	fmt.Fprintf(a.out, "%s\t%s\truns from %s of memory for weights\n", dir, size(report.Bytes), size(p.MemoryFloor()))
	return nil
}

// tableParts sums the n-gram tables of a packed store, whose rows are records and no tensors.
func tableParts(p *weights.Packed) (parts []part) {
	for _, t := range p.Manifest().Ngram {
		for i, m := range t.Formats {
			shards := t.Shards / len(t.Formats)
			one := part{Part: "n-gram table", Precision: string(m.DType), Tensors: shards}
			if m.Bits > 0 {
				one.Precision = fmt.Sprintf("affine %d-bit, group %d", m.Bits, m.Group)
			}
			one.Values = int64(shards) * int64(t.Rows) * int64(t.Dim)
			one.Bytes = int64(shards) * int64(t.Rows) * int64(t.RowBytes)
			if i > 0 && parts[len(parts)-1].Precision == one.Precision {
				last := &parts[len(parts)-1]
				last.Tensors, last.Values, last.Bytes = last.Tensors+one.Tensors, last.Values+one.Values, last.Bytes+one.Bytes
				continue
			}
			parts = append(parts, one)
		}
	}
	return parts
}

// byteProgress shows how far a long job on files is: a bar on a terminal, plain lines otherwise.
type byteProgress struct {
	app   *app
	what  string
	start time.Time
	from  int64 // bytes that were done when it started
	told  time.Time
	bars  *mpb.Progress
	bar   *mpb.Bar
}

// lineEvery is how often a line is written where there is no terminal.
const lineEvery = 10 * time.Second

// show takes how far the job is. Calls come from one goroutine at a time.
func (p *byteProgress) show(done, total int64) {
	now := time.Now()
	if p.start.IsZero() {
		p.start, p.told, p.from = now, now, done
	}
	if p.app.terminal() {
		p.showBar(done, total)
	} else if now.Sub(p.told) >= lineEvery {
		p.told = now
		p.app.note("%s: %s of %s%s", p.what, size(done), size(total), p.left(done, total))
	}
}

func (p *byteProgress) showBar(done, total int64) {
	if p.bar == nil {
		p.bars = mpb.New(mpb.WithOutput(p.app.err), mpb.WithWidth(48))
		p.bar = p.bars.AddBar(total,
			mpb.PrependDecorators(decor.Name(p.what+" "), decor.Any(func(s decor.Statistics) string {
				return size(s.Current) + " of " + size(s.Total)
			})),
			mpb.AppendDecorators(decor.Any(func(s decor.Statistics) string { return p.left(s.Current, s.Total) })),
		)
	}
	p.bar.SetCurrent(done)
}

// left says how long the rest takes at the rate so far, once that tells something.
func (p *byteProgress) left(done, total int64) string {
	spent := time.Since(p.start)
	if spent < time.Second || done <= p.from {
		return ""
	}
	rest := time.Duration(float64(spent) * float64(total-done) / float64(done-p.from))
	return fmt.Sprintf(", %s left", rest.Round(time.Second))
}

// end takes the bar down.
func (p *byteProgress) end() {
	endBar(p.bars, p.bar)
	p.bar, p.bars = nil, nil
}
