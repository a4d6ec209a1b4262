package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/selfcheck"
	"lector/shaders"
)

// kernelCheck is how the kernels of one class did.
type kernelCheck struct {
	Class   string             `json:"class"`
	Results []selfcheck.Result `json:"results"`
}

// checkKernels runs every operation on a kind of device in both of its classes.
func (a *app) checkKernels(ctx context.Context, kind string, r *checkup) error {
	var ran []string
	for _, float := range []bool{false, true} {
		k, names, err := a.checkClass(ctx, kind, float)
		if err != nil {
			return err
		}
		r.Kernels = append(r.Kernels, k)
		ran = append(ran, names...)
	}
	for _, k := range shaders.Kernels() {
		if !slices.Contains(ran, k) {
			r.Unrun = append(r.Unrun, k)
		}
	}
	return nil
}

// checkClass returns the results and the kernels that were asked for.
func (a *app) checkClass(ctx context.Context, kind string, float bool) (k kernelCheck, ran []string, err error) {
	device, err := a.openGPU(kind, gpu.Options{Float32: float})
	if err != nil {
		return k, nil, err
	}
	defer func() { err = errors.Join(err, device.close()) }()
	k.Class = device.Class()
	if k.Results, err = selfcheck.Run(ctx, cpu.New(cpu.Options{Workers: a.workers}), device.Backend); err != nil {
		return k, nil, err
	}
	if b, ok := device.Backend.(*gpu.Backend); ok {
		ran = b.Kernels()
	}
	return k, ran, nil
}

// printKernels prints a line for every operation, and one for every check that failed.
func (r *checkup) printKernels(a *app) error {
	for _, k := range r.Kernels {
		fmt.Fprintf(a.out, "\nkernels of class %s against the CPU, %d of %d checks within their bounds\n",
			k.Class, len(k.Results)-selfcheck.Failed(k.Results), len(k.Results))
		t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "operation\tshapes\tworst\tbound\t")
		var order []string
		byOp := map[string][]selfcheck.Result{}
		for _, res := range k.Results {
			if byOp[res.Op] == nil {
				order = append(order, res.Op)
			}
			byOp[res.Op] = append(byOp[res.Op], res)
		}
		for _, op := range order {
			printOperation(t, byOp[op])
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, k := range r.Unrun {
		fmt.Fprintf(a.out, "%s was not run\n", k)
	}
	return nil
}

// printOperation sums up the checks of one operation: the one that is nearest to its bound, or past it.
func printOperation(t *tabwriter.Writer, results []selfcheck.Result) {
	worst := results[0]
	for _, r := range results {
		if r.Off*worst.Bound > worst.Off*r.Bound || r.Bound == 0 && r.Off > 0 {
			worst = r
		}
	}
	verdict := "ok"
	if selfcheck.Failed(results) > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(t, "%s\t%d\t%.1e\t%.0e\t%s\n", worst.Op, len(results), worst.Off, worst.Bound, verdict)
	for _, r := range results {
		if !r.OK() {
			fmt.Fprintf(t, "  %s\t\t%.1e\t%.0e\t%s\n", r.Shape, r.Off, r.Bound, r.Err)
		}
	}
}
