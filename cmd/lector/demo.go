package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/cmd/lector/demo"
	"lector/engine/nano"
	"lector/worker"
)

func newDemo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Read a long document with the built-in model and answer questions from the handle",
		Long: "demo reads the built-in document with the built-in model nano, stores its state, prints the handle, and then asks\n" +
			"twelve questions. Each is answered by a new process that knows the document only by its handle.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c.Context()) },
	}
}

// answerTokens is enough for the longest answer of nano's kinds.
const answerTokens = 16

func (a *app) demo(ctx context.Context) error {
	a.model, a.norm = nano.Name, "grouped"
	receipt, err := a.demoRead(ctx)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	start := time.Now()
	fmt.Fprintf(a.out, "\nHandle: %s\n\n", receipt.Handle)
	fmt.Fprintf(a.out, "Each question is answered by a new process, resumed from that handle:\n\n")
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "question\tnano answered\tright is\t")
	right := 0
	for _, q := range demo.Questions() {
		got, err := a.ask(ctx, receipt.Handle, q.Prompt)
		if err != nil {
			return fmt.Errorf("demo: ask for the %s of %s: %w", q.Kind, q.Place, err)
		}
		answer, want := strings.TrimSpace(got.Text), strings.TrimSuffix(strings.TrimSpace(q.Want), ".")
		verdict := "wrong"
		if answer == want && got.FinishReason == worker.FinishStop {
			verdict = "right"
			right++
		}
		fmt.Fprintf(t, "The %s of %s?\t%s\t%s\t%s\n", q.Kind, q.Place, answer, want, verdict)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	fmt.Fprintf(a.out, "\n%d of %d right, %.1f s for all of them. Ask one yourself:\n\n", right, len(demo.Questions()), time.Since(start).Seconds())
	fmt.Fprintf(a.out, "  lector resume %.16s%s --stop . --prompt $'\\n\\nQuestion: What is the cargo of Quiet Ferry?\\nAnswer:'\n\n", receipt.Handle, a.holding.given())
	if right < len(demo.Questions()) {
		return fmt.Errorf("demo: %d answers are wrong: nano knows them all, so the engine or the restored state is at fault", len(demo.Questions())-right)
	}
	return nil
}

// demoRead reads the document in this process and lets go of everything, so that nothing is left in memory.
func (a *app) demoRead(ctx context.Context) (outcome, error) {
	s, err := a.openSession(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer s.closeNoted()
	tokens, err := s.model.text.Encode(demo.Document())
	if err != nil {
		return outcome{}, err
	}
	fmt.Fprintf(a.out, "Reading %d tokens of Newton's Opticks, with twelve invented facts strewn in.\n", len(tokens))
	receipt, err := s.ingest(ctx, tokens, "demo", ingestFlags{})
	if err != nil {
		return receipt, err
	}
	n := receipt.Tokens
	if n.Computed > 0 && n.Restored == 0 {
		fmt.Fprintf(a.out, "Read in %.1f s; the state of %s is stored.\n", receipt.Seconds.Total, size(receipt.StateBytes))
	} else {
		fmt.Fprintf(a.out, "%d tokens were read before, %d now; the state of %s is stored.\n", n.Restored, n.Computed, size(receipt.StateBytes))
	}
	return receipt, nil
}

// ask answers one question in a new process.
func (a *app) ask(ctx context.Context, handle, prompt string) (worker.Result, error) {
	var r worker.Result
	self, err := os.Executable()
	if err != nil {
		return r, fmt.Errorf("find this program: %w", err)
	}
	args := []string{"resume", handle, "--model", nano.Name, "--prompt", prompt, "--stop", ".", "--max-tokens", fmt.Sprint(answerTokens), "--json"}
	for flag, value := range map[string]string{
		"--data": a.data, "--store": a.store, "--store-sync": a.sync, "--device": a.device, "--kv": a.kv, "--state": a.recurrent, "--tenant": a.tenant, "--salt": a.trust.salt,
		"--sign-key": a.trust.signKey, "--seal-key": a.trust.sealKey, "--seal-identity": a.trust.sealIdentity,
	} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = a.err
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("run lector resume: %w", err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("read answer: %w", err)
	}
	return r, nil
}
