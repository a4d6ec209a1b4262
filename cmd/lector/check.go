package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lector/engine/cpu"
	"lector/engine/ops"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
	"lector/engine/weights"
)

func newCheck(a *app) *cobra.Command {
	var file string
	var chunk int
	var asJSON bool
	c := &cobra.Command{
		Use:   "check --model DIR --oracle FILE",
		Short: "Compare the engine with what the reference computed",
		Long: "check runs a fixture's prompt and compares logits, residuals, choices, every state, the draft head in both\n" +
			"readings and the greedy continuation with what the reference recorded. It prints each figure and what was not\n" +
			"compared. A device or a setting that rounds is run again, held to the choices of an exact run, and compared with\n" +
			"that. Exit code 1: a figure is past its tolerance.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return badInput(errors.New("check needs --oracle FILE, the oracle.safetensors of a fixture"))
			}
			if chunk < 1 {
				return badInput(fmt.Errorf("--chunk %d: at least 1 token", chunk))
			}
			return a.check(c, file, chunk, asJSON)
		},
	}
	c.Flags().StringVar(&file, "oracle", "", "oracle.safetensors `file`, with oracle.json beside it")
	c.Flags().IntVar(&chunk, "chunk", 512, "tokens a chunk")
	c.Flags().BoolVar(&asJSON, "json", false, "print the figures as JSON")
	return c
}

// forcedRun is a run that is held to the choices of an exact one.
type forcedRun struct {
	backend ops.Backend
	opt     qwen4exp.Options
	chunk   int
	bound   float64
}

// checkForced compares a run that is not exact with one that is, once more with the choices of that one: so a choice
// that was close hides no fault of the arithmetic.
func (a *app) checkForced(ctx context.Context, fixture *oracle.Fixture, c *weights.Checkpoint, run forcedRun) ([]oracle.Line, error) {
	run.opt.HiddenNorm = qwen4exp.Grouped
	exact := run.opt
	exact.KV, exact.State = qwen4exp.KVF32, qwen4exp.StateF32
	on := func(be ops.Backend, opt qwen4exp.Options) oracle.OpenOn {
		return func(wrap func(ops.Backend) ops.Backend) (*qwen4exp.Engine, error) {
			return qwen4exp.Open(c, wrap(be), opt)
		}
	}
	report, err := oracle.Forced(ctx, on(cpu.New(cpu.Options{Workers: a.workers}), exact), on(run.backend, run.opt), fixture.Tokens, run.chunk, run.bound)
	return report.Lines, err
}

func (a *app) check(c *cobra.Command, file string, chunk int, asJSON bool) error {
	fixture, err := oracle.Load(file)
	if err != nil {
		return badInput(err)
	}
	source, err := a.openCheckpoint()
	if err != nil {
		return err
	}
	defer source.Close()
	memory, err := a.memoryBytes()
	if err != nil {
		return err
	}
	device, err := a.openBackend(source.checkpoint.Mapped())
	if err != nil {
		return err
	}
	defer device.close()
	opt := qwen4exp.Options{KV: qwen4exp.KV(a.kv), State: qwen4exp.State(a.recurrent), Memory: memory, Beside: besideEngine}
	bounds := oracle.BoundsOf(device.Class(), opt.Codec())
	report, err := fixture.CheckWithin(c.Context(), func(norm qwen4exp.HiddenNorm) (*qwen4exp.Engine, error) {
		opt.HiddenNorm = norm
		return qwen4exp.Open(source.checkpoint, device.Backend, opt)
	}, chunk, bounds.Free)
	if err == nil && bounds.Forced > 0 {
		report.Forced, err = a.checkForced(c.Context(), fixture, source.checkpoint, forcedRun{device.Backend, opt, chunk, bounds.Forced})
	}
	if err != nil {
		return badInput(fmt.Errorf("check %s: %w", file, err))
	}
	if asJSON {
		err = json.NewEncoder(a.out).Encode(report)
	} else {
		err = report.Print(a.out)
	}
	if err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	if !report.OK() {
		return fmt.Errorf("%s does not hold on model %s", file, source.checkpoint.Name())
	}
	return nil
}
