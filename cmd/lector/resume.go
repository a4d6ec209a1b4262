package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/engine"
	"lector/queue"
	"lector/worker"
)

// resumeFlags are what a resume says beside the handle.
type resumeFlags struct {
	prompt, chat, system, tokens string
	thinking, keep, asJSON       bool
	temperature, topP            float64
	topK, maxTokens, drafts      int
	capacity                     int
	seed                         uint64
	seeded, drafting             bool // --seed, --drafts were given
	stops                        []string
	ttl                          time.Duration
}

// usualDrafts is how many tokens are drafted ahead where nobody says.
const usualDrafts = 2

func newResume(a *app) *cobra.Command {
	var f resumeFlags
	c := &cobra.Command{
		Use:   "resume HANDLE",
		Short: "Go on from a handle: restore the state, read a prompt, stream the text",
		Long: "resume restores the state that a handle names, reads the prompt and streams the text that follows. HANDLE is\n" +
			"what ingest printed, or its beginning (at least 8 characters after lh1-), or a tag. Without a prompt the text goes on from\n" +
			"the document's end.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.seeded, f.drafting = c.Flags().Changed("seed"), c.Flags().Changed("drafts")
			return a.resume(c.Context(), args[0], f)
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.prompt, "prompt", "", "`text` that follows the document; - reads it from standard input")
	fs.StringVar(&f.chat, "chat", "", "user `message`, or a JSON array of {role, content}, rendered by the chat template")
	fs.StringVar(&f.system, "system", "", "system `message` before a --chat message")
	fs.BoolVar(&f.thinking, "thinking", false, "let the model think before it answers a --chat")
	fs.StringVar(&f.tokens, "tokens", "", "token `ids` that follow the document")
	fs.Float64Var(&f.temperature, "temperature", 0, "0 is greedy; higher is more random")
	fs.IntVar(&f.topK, "top-k", 0, "choose among the `k` likeliest tokens (0: all)")
	fs.Float64Var(&f.topP, "top-p", 1, "choose among the likeliest tokens that sum to this `probability`")
	fs.Uint64Var(&f.seed, "seed", 0, "`number` that fixes the random choices (default: a random one)")
	fs.StringArrayVar(&f.stops, "stop", nil, "end before this `text`; may be given again")
	fs.IntVar(&f.maxTokens, "max-tokens", 256, "most tokens to generate")
	fs.IntVar(&f.drafts, "drafts", 0, "tokens drafted ahead, 0 to 3; they change the speed, never the text (default: 2 with a draft head)")
	fs.IntVar(&f.capacity, "capacity", 0, "most `tokens` of document, prompt and text together (default: the model's limit)")
	fs.BoolVar(&f.keep, "keep", false, "store the extended state and print a handle for it on standard error")
	fs.DurationVar(&f.ttl, "ttl", 0, "how long that handle is valid (default: for good)")
	fs.BoolVar(&f.asJSON, "json", false, "print the result as JSON instead of streaming the text")
	a.metricsFlag(fs)
	return c
}

func (a *app) resume(ctx context.Context, handle string, f resumeFlags) error {
	if err := f.check(); err != nil {
		return badInput(err)
	}
	if f.prompt == "-" {
		text, err := io.ReadAll(io.LimitReader(a.in, queue.MaxJobBytes+1))
		if err != nil {
			return badInput(fmt.Errorf("read prompt: %w", err))
		}
		f.prompt = string(text)
	}
	s, err := a.openSession(ctx)
	if err != nil {
		return err
	}
	defer func() { s.linger(ctx); s.closeNoted() }()
	job, err := s.resumeJob(ctx, handle, f)
	if err != nil {
		return err
	}
	status, _, err := s.run(ctx, job, func(e queue.Event) {
		if e.Type == queue.EventTokens && !f.asJSON {
			fmt.Fprint(a.out, e.Text)
		}
	})
	if err != nil {
		return fmt.Errorf("resume %s: %w", handle, err)
	}
	r, err := result[worker.Result](status)
	if err != nil {
		return err
	}
	if r.Handle != "" {
		d, err := cache.ParseHandleName(r.Handle)
		if err != nil {
			return err
		}
		if err := a.vouch(ctx, s.space, d); err != nil {
			return err
		}
	}
	return a.printResult(r, f)
}

func (a *app) printResult(r worker.Result, f resumeFlags) error {
	if f.asJSON {
		return json.NewEncoder(a.out).Encode(r)
	}
	fmt.Fprintln(a.out)
	if a.verbose {
		a.note("restored %d tokens in %.2f s, prefilled %d in %.2f s, generated %d in %.2f s, %d of %d drafts accepted, ended by %s",
			r.Usage.Restored, r.Timings.Restore, r.Usage.Prefilled, r.Timings.Prefill, r.Usage.Generated, r.Timings.Decode,
			r.Usage.Accepted, r.Usage.Drafted, r.FinishReason)
	}
	if r.Handle != "" {
		a.note("extended state: %s", r.Handle)
	}
	return nil
}

// check refuses settings that no model can serve.
func (f *resumeFlags) check() error {
	prompts := 0
	for _, set := range []bool{f.prompt != "", f.chat != "", f.tokens != ""} {
		if set {
			prompts++
		}
	}
	switch {
	case prompts > 1:
		return errors.New("give one of --prompt, --chat and --tokens")
	case f.chat == "" && (f.system != "" || f.thinking):
		return errors.New("--system and --thinking go with --chat")
	case f.temperature < 0:
		return fmt.Errorf("--temperature %v: 0 or more", f.temperature)
	case f.topP <= 0 || f.topP > 1:
		return fmt.Errorf("--top-p %v: above 0, at most 1", f.topP)
	case f.topK < 0:
		return fmt.Errorf("--top-k %d: 0 or more", f.topK)
	case f.maxTokens < 1:
		return fmt.Errorf("--max-tokens %d: at least 1", f.maxTokens)
	case f.drafts < 0 || f.drafts > engine.MaxDrafts:
		return fmt.Errorf("--drafts %d: 0 to %d", f.drafts, engine.MaxDrafts)
	case f.ttl < 0:
		return fmt.Errorf("--ttl %v: a handle cannot expire before it is made", f.ttl)
	}
	for _, stop := range f.stops {
		if stop == "" {
			return errors.New("--stop is empty: give the text to end before")
		}
	}
	return nil
}

// resumeJob finds the handle, checks that this model can take it and builds the order.
func (s *session) resumeJob(ctx context.Context, name string, f resumeFlags) (queue.Job, error) {
	digest, handle, err := s.app.findTrusted(ctx, s.space, name)
	if err != nil {
		return queue.Job{}, err
	}
	if err := handle.Valid(time.Now()); err != nil {
		return queue.Job{}, err
	}
	manifest, err := s.space.Manifest(ctx, handle.Manifest)
	if err != nil {
		return queue.Job{}, err
	}
	if err := s.identity.CompatibleSalted(manifest.Identity, s.salts[1:]); err != nil {
		return queue.Job{}, fmt.Errorf("resume %s with model %s: %w", name, s.model.checkpoint.Name(), s.app.withSettings(err, manifest.Identity))
	}
	order := queue.ResumeOrder{
		Handle: digest.String(), Text: f.prompt, Thinking: f.thinking, MaxTokens: f.maxTokens, Stop: f.stops,
		Sampling: queue.Sampling{Temperature: f.temperature, TopK: f.topK, TopP: f.topP},
		Drafts:   s.drafts(f), Capacity: f.capacity, Keep: f.keep, TTL: f.ttl,
	}
	if order.Chat, err = f.messages(); err != nil {
		return queue.Job{}, badInput(err)
	}
	if order.Tokens, err = parseTokens(f.tokens); err != nil {
		return queue.Job{}, badInput(err)
	}
	opt := worker.ResumeOptions{Submitted: time.Now()}
	if f.seeded {
		opt.Seed = &f.seed
	}
	job := worker.NewResume(s.identity, order, opt)
	return job, badInput(job.Validate())
}

// drafts is how many tokens are drafted ahead.
func (s *session) drafts(f resumeFlags) int {
	switch {
	case !s.model.engine.Info().DraftHead:
		return 0
	case !f.drafting:
		return usualDrafts
	}
	return f.drafts
}

// messages reads --chat: one user message, or a JSON array of messages.
func (f *resumeFlags) messages() ([]queue.Message, error) {
	if f.chat == "" {
		return nil, nil
	}
	var out []queue.Message
	if f.system != "" {
		out = append(out, queue.Message{Role: "system", Content: f.system})
	}
	if !strings.HasPrefix(strings.TrimSpace(f.chat), "[{") {
		return append(out, queue.Message{Role: "user", Content: f.chat}), nil
	}
	var listed []queue.Message
	if err := json.Unmarshal([]byte(f.chat), &listed); err != nil {
		return nil, fmt.Errorf("read --chat: %w", err)
	}
	return append(out, listed...), nil
}
