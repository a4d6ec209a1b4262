package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/nano"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
	"lector/engine/selfcheck"
	"lector/metal"
)

func newDoctor(a *app) *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "List the devices here and test every kernel of one against the CPU",
		Long: "doctor lists the devices that this machine has. On the one that --device names (auto: the first there is) it compiles\n" +
			"every kernel, runs each over a table of shapes and compares it with the CPU, in half and in float32, then runs the\n" +
			"built-in model on it and on the CPU. It prints how far they are apart. --report writes all figures to a file that can\n" +
			"be sent along with a question. Exit code 1: the device computes something else.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.doctor(c.Context(), f) },
	}
	c.Flags().IntVar(&f.tokens, "prompt", 96, "`tokens` of the prompt that is run; past 512 attention selects blocks")
	c.Flags().BoolVar(&f.json, "json", false, "print the report as JSON")
	c.Flags().StringVar(&f.report, "report", "", "`file` to write the report to, as JSON, whatever it says")
	return c
}

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	tokens int
	json   bool
	report string
}

// checkup is what doctor finds.
type checkup struct {
	Version string         `json:"version"`
	System  string         `json:"system"`
	Go      string         `json:"go"`
	Store   storeSetting   `json:"store"`
	Devices []deviceStatus `json:"devices"`
	Device  string         `json:"device"` // that was tested
	Class   string         `json:"class"`
	Compile float64        `json:"compile_seconds"`
	Kernels []kernelCheck  `json:"kernels"` // by class; none of the CPU
	Unrun   []string       `json:"unrun"`   // kernels that no check asked for
	Test    oracle.Report  `json:"test"`
}

// ok says that the device computes what the CPU does.
func (r *checkup) ok() bool {
	for _, k := range r.Kernels {
		if selfcheck.Failed(k.Results) > 0 {
			return false
		}
	}
	return r.Test.OK() && len(r.Unrun) == 0
}

// deviceStatus is one kind of device and whether it is here.
type deviceStatus struct {
	Name   string `json:"name"`
	Here   bool   `json:"here"`
	Detail string `json:"detail"`
}

func (a *app) doctor(ctx context.Context, f doctorFlags) error {
	if f.tokens < 2 || f.tokens > 4096 { // of one token the draft head has no row to compare
		return badInput(fmt.Errorf("--prompt %d: 2 to 4096 tokens", f.tokens))
	}
	r, err := a.examine(ctx, f.tokens)
	if err != nil {
		return err
	}
	encode := func(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
	if f.report != "" {
		if err := writeTo(f.report, encode); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	if f.json {
		err = encode(a.out)
	} else {
		err = r.print(a)
	}
	if err == nil && !r.ok() {
		err = fmt.Errorf("%s computes something else than the CPU: please send a report (--report FILE)", r.Device)
	}
	return err
}

// examine lists devices and tests one.
func (a *app) examine(ctx context.Context, tokens int) (*checkup, error) {
	r := &checkup{Version: version(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Devices: a.devices()}
	var err error
	if r.Store, err = a.storeSetting(); err != nil {
		return nil, err
	}
	device, err := a.openBackend(nil)
	if err != nil {
		return nil, err
	}
	defer device.close()
	r.Device, r.Class = device.name, device.Class()
	start := time.Now()
	if b, ok := device.Backend.(*gpu.Backend); ok {
		if err := b.Prepare(); err != nil {
			return nil, fmt.Errorf("compile the kernels: %w", err)
		}
		r.Compile = time.Since(start).Seconds()
		if err := a.checkKernels(ctx, device.kind, r); err != nil {
			return nil, fmt.Errorf("test the kernels on %s: %w", device.name, err)
		}
	}
	if r.Test, err = a.compare(ctx, device, tokens); err != nil {
		return nil, fmt.Errorf("test %s: %w", device.name, err)
	}
	return r, nil
}

// devices looks for every kind of device.
func (a *app) devices() []deviceStatus {
	list := []deviceStatus{{Name: "cpu", Here: true, Detail: fmt.Sprintf("%d threads", runtime.GOMAXPROCS(0))}}
	for _, name := range []string{"metal", "cuda", "soft"} {
		d, err := a.openDevice(name)
		if err != nil {
			list = append(list, deviceStatus{Name: name, Detail: oneLine(err)})
			continue
		}
		p := d.Properties()
		detail := fmt.Sprintf("%s, working set %s", p.Name, size(p.WorkingSetBytes))
		if err := d.Close(); err != nil {
			detail += ", does not close: " + oneLine(err)
		}
		list = append(list, deviceStatus{Name: name, Here: true, Detail: detail})
	}
	return list
}

// compare runs the built-in model on the device and on the CPU. A half-staged class may turn over close choices.
func (a *app) compare(ctx context.Context, device *computing, tokens int) (oracle.Report, error) {
	c, err := nano.Open()
	if err != nil {
		return oracle.Report{}, err
	}
	defer c.Close()
	reference, err := qwen4exp.Open(c, cpu.New(cpu.Options{Workers: a.workers}), qwen4exp.Options{})
	if err != nil {
		return oracle.Report{}, err
	}
	defer reference.Close()
	subject, err := qwen4exp.Open(c, device.Backend, qwen4exp.Options{})
	if err != nil {
		return oracle.Report{}, err
	}
	defer subject.Close()
	prompt := make([]int32, tokens)
	for i := range prompt {
		prompt[i] = int32((i*i*31 + i*7) % 4000)
	}
	limit := 1e-3
	if oracle.BoundsOf(device.Class(), "").Free > 0 {
		limit = 5e-2
	}
	report, err := oracle.Against(ctx, reference, subject, prompt, limit)
	if errors.Is(err, metal.ErrCompile) {
		err = fmt.Errorf("a kernel does not compile here: %w", err)
	}
	return report, err
}

func (r *checkup) print(a *app) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "system\t%s, %s\nstore\t%s\n", r.System, r.Go, r.Store)
	for _, d := range r.Devices {
		here := "here"
		if !d.Here {
			here = "not here"
		}
		fmt.Fprintf(t, "%s\t%s: %s\n", d.Name, here, d.Detail)
	}
	fmt.Fprintf(t, "tested\t%s, class %s", r.Device, r.Class)
	if r.Kernels != nil {
		fmt.Fprintf(t, ", kernels compiled in %.1f s", r.Compile)
	}
	fmt.Fprintln(t)
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.printKernels(a); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	return r.Test.Print(a.out)
}
