package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lector/cache"
	"lector/engine"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
	"lector/worker/client"
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
	branches                     int
	detach, pieces               bool
	keepState                    keepState
	attach                       string   // job
	from                         []string // places of its texts
	computing                    []string // flags given that say how this process computes
}

// usualDrafts is how many tokens are drafted ahead where nobody says.
const usualDrafts = 2

func newResume(a *app) *cobra.Command {
	var f resumeFlags
	c := &cobra.Command{
		Use:   "resume HANDLE | resume --attach JOB",
		Short: "Go on from a handle: restore the state, read a prompt, stream the text",
		Long: "resume restores the state that a handle names, reads the prompt and streams the text that follows. HANDLE is\n" +
			"what ingest printed, or its beginning (at least 8 characters after lh1-), or a tag. What a handle of token ids alone names\n" +
			"is read again first. Without a prompt the text goes on from\n" +
			"the document's end. With --nats, or beside a lector worker on the same data folder, that worker makes the text and no\n" +
			"model is loaded here; --detach then prints the job, and --attach hears it, from the beginning or from a place on, as often as wanted.",
		Args: func(_ *cobra.Command, args []string) error {
			if (f.attach != "") == (len(args) == 1) || len(args) > 1 {
				return errors.New("give a HANDLE, or --attach JOB")
			}
			if len(f.from) > 0 && f.attach == "" {
				return errors.New("--from goes with --attach")
			}
			_, err := parsePlace(f.from)
			return err
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.seeded, f.drafting = c.Flags().Changed("seed"), c.Flags().Changed("drafts")
			for _, name := range []string{"device", "class", "float32", "threads", "memory", "metrics"} {
				if c.Flags().Changed(name) {
					f.computing = append(f.computing, "--"+name)
				}
			}
			if f.attach != "" {
				return a.attach(c.Context(), f)
			}
			return a.resume(c.Context(), args[0], f)
		},
	}
	fs := c.Flags()
	f.declarePrompt(fs)
	f.declareText(fs)
	fs.BoolVar(&f.keep, "keep", false, "store the extended state and print a handle for it on standard error")
	f.keepState.flag(fs)
	fs.DurationVar(&f.ttl, "ttl", 0, "how long that handle is valid (default: for good)")
	fs.BoolVar(&f.asJSON, "json", false, "print the result as JSON instead of streaming the text")
	fs.BoolVar(&f.pieces, "pieces", false, "stream the text as JSON lines with their place: branch, index of the first token, byte offset, attempt")
	fs.BoolVar(&f.detach, "detach", false, "print the job and leave it to the workers")
	fs.StringVar(&f.attach, "attach", "", "stream the text of a `job` that was submitted before")
	fs.StringArrayVar(&f.from, "from", nil, "with --attach: go on behind this `place` of the text, the \"from\" of the last line that --pieces printed; once for each of several texts")
	a.metricsFlag(fs)
	return c
}

// declarePrompt declares what follows the document.
func (f *resumeFlags) declarePrompt(fs *pflag.FlagSet) {
	fs.StringVar(&f.prompt, "prompt", "", "`text` that follows the document; - reads it from standard input")
	fs.StringVar(&f.chat, "chat", "", "user `message`, or a JSON array of {role, content}, rendered by the chat template")
	fs.StringVar(&f.system, "system", "", "system `message` before a --chat message")
	fs.BoolVar(&f.thinking, "thinking", false, "let the model think before it answers a --chat")
	fs.StringVar(&f.tokens, "tokens", "", "token `ids` that follow the document")
}

// declareText declares how the text is made.
func (f *resumeFlags) declareText(fs *pflag.FlagSet) {
	fs.Float64Var(&f.temperature, "temperature", 0, "0 is greedy; higher is more random")
	fs.IntVar(&f.topK, "top-k", 0, "choose among the `k` likeliest tokens (0: all)")
	fs.Float64Var(&f.topP, "top-p", 1, "choose among the likeliest tokens that sum to this `probability`")
	fs.Uint64Var(&f.seed, "seed", 0, "`number` that fixes the random choices (default: a random one)")
	fs.StringArrayVar(&f.stops, "stop", nil, "end before this `text`; may be given again")
	fs.IntVar(&f.branches, "n", 1, "texts to make, each by random choices of its own; they share the document and the prompt")
	fs.IntVar(&f.maxTokens, "max-tokens", 256, "most tokens to generate")
	fs.IntVar(&f.drafts, "drafts", 0, "tokens drafted ahead, 0 to 3; they change the speed, never the text (default: 2 with a draft head)")
	fs.IntVar(&f.capacity, "capacity", 0, "most `tokens` of document, prompt and text together (default: the model's limit)")
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
	done, err := a.resumeElsewhere(ctx, handle, f)
	if err != nil || done {
		return err
	}
	return a.resumeHere(ctx, handle, f)
}

// resumeElsewhere leaves the job to a fleet, or to the worker that owns the data folder; done is false where there is
// neither.
func (a *app) resumeElsewhere(ctx context.Context, name string, f resumeFlags) (done bool, err error) {
	if len(f.computing) > 0 && (a.nats.remote() || f.detach) {
		return true, badInput(fmt.Errorf("%s is for the process that computes, and that is a worker: leave it out", strings.Join(f.computing, ", ")))
	}
	if len(f.computing) > 0 {
		return false, nil // this process is to compute, and as it is told
	}
	d, err := a.openDesk(ctx)
	if errors.Is(err, jetstream.ErrNoServer) {
		if f.detach {
			return true, errNobody(queue.Resume)
		}
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer a.closeDesk(d)
	digest, m, err := a.resumable(ctx, d.Space, name)
	if err != nil {
		return true, err
	}
	model, err := a.modelNow(ctx, m.Identity)
	if err != nil {
		return true, err
	}
	if !d.serves(a, queue.Resume, model) {
		if f.detach {
			return true, errNobody(queue.Resume)
		}
		return false, nil
	}
	status, err := f.submit(ctx, d.Client, digest, model)
	if err != nil {
		return true, err
	}
	if f.detach {
		_, err := fmt.Fprintln(a.out, status.Job.ID)
		return true, err
	}
	return true, resuming(name, a.hear(ctx, d.hearing(status.Job), f))
}

// resumeHere loads the model and works on the job in this process.
func (a *app) resumeHere(ctx context.Context, name string, f resumeFlags) error {
	s, err := a.openSession(ctx)
	if err != nil {
		return err
	}
	defer func() { s.app.leave(ctx, s.server); s.closeNoted() }()
	digest, m, err := a.resumable(ctx, s.space, name)
	if err != nil {
		return err
	}
	if err := s.identity.Restores(m, s.salts[1:]); err != nil {
		return fmt.Errorf("resume %s with model %s: %w", name, s.model.checkpoint.Name(), a.withSettings(err, m.Identity))
	}
	h, err := s.hearing(ctx, digest, f)
	if err != nil {
		return err
	}
	return resuming(name, a.hear(ctx, h, f))
}

// resuming says what was done when a job failed.
func resuming(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("resume %s: %w", what, err)
}

// attach streams the text of a job that was submitted before.
func (a *app) attach(ctx context.Context, f resumeFlags) error {
	q, closer, err := a.openQueueOnly(ctx, jetstream.Config{})
	if err != nil {
		return err
	}
	d, err := a.newDesk(ctx, q, closer)
	if err != nil {
		return err
	}
	defer a.closeDesk(d)
	var status queue.Status
	err = d.atQueue(ctx, func(q *jetstream.Queue) error {
		status, err = q.Status(ctx, f.attach)
		return err
	})
	if errors.Is(err, queue.ErrUnknown) || err == nil && status.Job.Kind != queue.Resume {
		return badInput(fmt.Errorf("there is no resume %q in this queue", f.attach))
	}
	if err != nil {
		return err
	}
	return resuming("--attach "+f.attach, a.hear(ctx, d.hearing(status.Job), f))
}

// resumable finds a handle that a person names, and what it is the state of.
func (a *app) resumable(ctx context.Context, space *cache.Space, name string) (cache.Digest, cache.Manifest, error) {
	digest, handle, err := a.findTrusted(ctx, space, name)
	if err != nil {
		return digest, cache.Manifest{}, err
	}
	if err := handle.Valid(time.Now()); err != nil {
		return digest, cache.Manifest{}, err
	}
	m, err := space.Manifest(ctx, handle.Manifest)
	if err == nil && m.TokensOnly() {
		a.note("%s holds token ids alone: of its %d tokens those are read again that nobody has stored the state of", cache.HandleName(digest), m.Tokens)
	}
	return digest, m, err
}

// modelNow is the model whose workers resume a state: of a state that was stored under an older salt or seal key, the
// same model under the newest.
func (a *app) modelNow(ctx context.Context, id cache.Identity) (string, error) {
	salts, err := a.salts(ctx)
	if err != nil {
		return "", err
	}
	if now := cache.NewIdentity(id.Fields, id.Class, id.Grid, salts[0]); now.CompatibleSalted(id, salts[1:]) == nil {
		return now.Model.String(), nil
	}
	return id.Model.String(), nil // whoever has its salt takes it
}

// submit orders the text that the flags describe, of the workers of a model.
func (f *resumeFlags) submit(ctx context.Context, c *client.Client, handle cache.Digest, model string) (queue.Status, error) {
	order := queue.ResumeOrder{
		Handle: handle.String(), Text: f.prompt, Thinking: f.thinking, MaxTokens: f.maxTokens, Stop: f.stops,
		Sampling: queue.Sampling{Temperature: f.temperature, TopK: f.topK, TopP: f.topP},
		Drafts:   usualDrafts, Capacity: f.capacity, Keep: f.keep, TTL: f.ttl,
	}
	var err error
	if order.KeepState, err = f.keepState.order(); err != nil {
		return queue.Status{}, err
	}
	if f.drafting {
		order.Drafts = f.drafts
	}
	if f.branches > 1 {
		order.Branches = f.branches
	}
	if order.Chat, err = f.messages(); err != nil {
		return queue.Status{}, badInput(err)
	}
	if order.Tokens, err = parseTokens(f.tokens); err != nil {
		return queue.Status{}, badInput(err)
	}
	opt := worker.ResumeOptions{Model: model}
	if f.seeded {
		opt.Seed = &f.seed
	}
	return c.Resume(ctx, order, opt)
}

// hearing is a job whose text is heard, and how it is waited for.
type hearing struct {
	client *client.Client
	job    queue.Job
	wait   func(ctx context.Context, follow func(context.Context) error) error
	again  func(ctx context.Context) (hearing, error) // at the queue of the next owner of the data folder
}

// heard is how far the texts of a job were printed.
type heard struct {
	place  client.Place
	branch int // of the last piece; -1: none yet
}

// hear streams a job's texts, or waits for its result, and says what came of it.
func (a *app) hear(ctx context.Context, h hearing, f resumeFlags) error {
	place, err := parsePlace(f.from)
	if err != nil {
		return badInput(err)
	}
	var r worker.Result
	so := &heard{place: place, branch: -1}
	for again := true; again; {
		err := h.wait(ctx, func(ctx context.Context) (err error) {
			if !f.asJSON {
				if err := a.stream(ctx, h, so, f.pieces); err != nil {
					return err
				}
			}
			r, err = h.client.Result(ctx, h.job.ID)
			return err
		})
		if again = a.ownerLeft(ctx, err); again {
			h, err = h.again(ctx)
		}
		if err != nil {
			return err
		}
	}
	if r.Handle != "" {
		d, err := cache.ParseHandleName(r.Handle)
		if err != nil {
			return err
		}
		if err := a.vouch(ctx, h.client.Space, d); err != nil {
			return err
		}
	}
	return a.printResult(r, f)
}

// stream prints the texts as they come.
func (a *app) stream(ctx context.Context, h hearing, so *heard, pieces bool) error {
	several := h.job.Resume.Branches > 1
	for p, err := range h.client.Stream(ctx, h.job.ID, maps.Clone(so.place)) {
		if err != nil {
			return err
		}
		if err := a.printPiece(p, several && p.Branch != so.branch, pieces); err != nil {
			return err
		}
		if so.branch = p.Branch; so.place == nil {
			so.place = client.Place{}
		}
		so.place.Add(p)
	}
	return nil
}

// printPiece prints a piece of text, under the number of its branch where another begins.
func (a *app) printPiece(p client.Piece, begins, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(a.out).Encode(placed(p))
	}
	text := p.Text
	if p.Finish != "" {
		text += "\n" // now: a state that is to be kept may be on its way for a while
	}
	if begins {
		text = fmt.Sprintf("[%d]%s", p.Branch+1, text)
	}
	_, err := fmt.Fprint(a.out, text)
	return err
}

func (a *app) printResult(r worker.Result, f resumeFlags) error {
	if f.asJSON {
		return json.NewEncoder(a.out).Encode(r)
	}
	if r.Usage.Reread > 0 {
		a.note("read %d of the handle's %d tokens again in %.1f s", r.Usage.Reread, r.Usage.Reread+r.Usage.Restored, r.Timings.Reread)
	}
	if a.verbose {
		a.note("restored %d tokens in %.2f s, prefilled %d in %.2f s, generated %d in %.2f s, %d of %d drafts accepted, ended by %s",
			r.Usage.Restored, r.Timings.Restore, r.Usage.Prefilled, r.Timings.Prefill, r.Usage.Generated, r.Timings.Decode,
			r.Usage.Accepted, r.Usage.Drafted, r.FinishReason)
	}
	if a.verbose && r.Handle != "" {
		a.note("storing the extended state took %.2f s of its own and %.2f s beside the text; it has %s",
			r.Timings.Store, r.Timings.Behind, size(r.StateBytes))
	}
	if r.Handle != "" {
		a.noteSync(r.StoreSync, r.Host)
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
	case f.branches < 1 || f.branches > queue.MaxBranches:
		return fmt.Errorf("--n %d: 1 to %d", f.branches, queue.MaxBranches)
	case f.keepState.none() && !f.keep:
		return errors.New("--keep-state goes with --keep")
	case f.branches > 1 && f.keep:
		return errors.New("--keep stores the state of one text: leave --n out")
	case f.asJSON && f.pieces:
		return errors.New("give one of --json and --pieces")
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
	_, err := f.keepState.order()
	return err
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
