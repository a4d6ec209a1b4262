package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/engine/cpu"
	"lector/engine/gpu"
	"lector/engine/nano"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
	"lector/metal"
)

func newDoctor(a *app) *cobra.Command {
	var asJSON bool
	var tokens int
	c := &cobra.Command{
		Use:   "doctor",
		Short: "List the devices here and test every kernel of one against the CPU",
		Long: "doctor lists the devices that this machine has, compiles every kernel on the one that --device names (auto: the\n" +
			"first there is), runs the built-in model on it and on the CPU, and prints how far they are apart. Its report can\n" +
			"be sent along with a question. Exit code 1: the device computes something else.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.doctor(c.Context(), tokens, asJSON) },
	}
	c.Flags().IntVar(&tokens, "prompt", 96, "`tokens` of the prompt that is run; past 512 attention selects blocks")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return c
}

// checkup is what doctor finds.
type checkup struct {
	System  string         `json:"system"`
	Go      string         `json:"go"`
	Devices []deviceStatus `json:"devices"`
	Device  string         `json:"device"` // that was tested
	Class   string         `json:"class"`
	Compile float64        `json:"compile_seconds"`
	Test    oracle.Report  `json:"test"`
}

// deviceStatus is one kind of device and whether it is here.
type deviceStatus struct {
	Name   string `json:"name"`
	Here   bool   `json:"here"`
	Detail string `json:"detail"`
}

func (a *app) doctor(ctx context.Context, tokens int, asJSON bool) error {
	if tokens < 1 || tokens > 4096 {
		return badInput(fmt.Errorf("--prompt %d: 1 to 4096 tokens", tokens))
	}
	r := checkup{System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Devices: a.devices()}
	device, err := a.openBackend(nil)
	if err != nil {
		return err
	}
	defer device.close()
	r.Device, r.Class = device.name, device.Class()
	start := time.Now()
	if b, ok := device.Backend.(*gpu.Backend); ok {
		if err := b.Prepare(); err != nil {
			return fmt.Errorf("compile the kernels: %w", err)
		}
	}
	r.Compile = time.Since(start).Seconds()
	if r.Test, err = a.compare(ctx, device, tokens); err != nil {
		return fmt.Errorf("test %s: %w", device.name, err)
	}
	if asJSON {
		err = json.NewEncoder(a.out).Encode(r)
	} else {
		err = r.print(a)
	}
	if err == nil && !r.Test.OK() {
		err = fmt.Errorf("%s computes something else than the CPU: please send this report", device.name)
	}
	return err
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

func (r checkup) print(a *app) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "system\t%s, %s\n", r.System, r.Go)
	for _, d := range r.Devices {
		here := "here"
		if !d.Here {
			here = "not here"
		}
		fmt.Fprintf(t, "%s\t%s: %s\n", d.Name, here, d.Detail)
	}
	fmt.Fprintf(t, "tested\t%s, class %s, kernels compiled in %.1f s\n", r.Device, r.Class, r.Compile)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	return r.Test.Print(a.out)
}
