package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/engine"
	"lector/queue"
	"lector/worker"
)

// ingestFlags are what an ingest says beside the document.
type ingestFlags struct {
	ids      bool
	capacity int
	ttl      time.Duration
	asJSON   bool
	dry      bool
	keep     keepState
}

func newIngest(a *app) *cobra.Command {
	var f ingestFlags
	c := &cobra.Command{
		Use:   "ingest FILE|-",
		Short: "Read a document, keep its state, print the handle",
		Long: "ingest reads a document chunk by chunk, stores the model's state and prints a handle to resume from. What an\n" +
			"earlier document with the same beginning has stored is not computed again. Interrupted or killed, the same\n" +
			"command goes on where it was. With --keep-state none nothing is computed: the handle holds the document's token ids.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.ingest(c.Context(), args[0], f) },
	}
	c.Flags().BoolVar(&f.ids, "tokens", false, "the document is a list of token ids, not text")
	c.Flags().IntVar(&f.capacity, "capacity", 0, "most `tokens` of document, prompt and text together (default: the model's limit)")
	c.Flags().DurationVar(&f.ttl, "ttl", 0, "how long the handle is valid, such as 720h (default: for good)")
	f.keep.flag(c.Flags())
	c.Flags().BoolVar(&f.asJSON, "json", false, "print the receipt as JSON")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "say how many tokens the document has and how large its state will be, and read nothing")
	a.metricsFlag(c.Flags())
	return c
}

func (a *app) ingest(ctx context.Context, path string, f ingestFlags) error {
	if f.ttl < 0 {
		return badInput(fmt.Errorf("--ttl %v: a handle cannot expire before it is made", f.ttl))
	}
	if _, err := f.keep.order(); err != nil {
		return err
	}
	text, name, err := a.readInput(path)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return badInput(fmt.Errorf("document %s is empty: there is nothing to read", name))
	}
	s, err := a.openSession(ctx)
	if err != nil {
		return err
	}
	defer func() { s.app.leave(ctx, s.server); s.closeNoted() }()
	tokens, err := documentTokens(s.model, text, name, f.ids)
	if err != nil {
		return err
	}
	if f.dry {
		return s.predict(tokens, f)
	}
	receipt, err := s.ingest(ctx, tokens, name, f)
	if err != nil {
		return fmt.Errorf("ingest %s: %w", name, err)
	}
	if err := s.vouch(ctx, receipt.HandleDigest); err != nil {
		return fmt.Errorf("ingest %s: %w", name, err)
	}
	if f.asJSON {
		return json.NewEncoder(a.out).Encode(receipt)
	}
	a.noteSync(receipt.StoreSync, receipt.Host)
	if receipt.Adopted {
		a.note("%s: %d tokens, read before; the handle of then holds", name, receipt.Tokens.Total)
		_, err = fmt.Fprintln(a.out, receipt.Handle)
		return err
	}
	if receipt.Tokens.Unread > 0 {
		a.note("%s: %d tokens, kept as ids alone in %s: every resume reads those again that nobody has stored the state of",
			name, receipt.Tokens.Total, size(receipt.StateBytes))
	} else {
		a.note("%s: %d tokens, %d restored, %d computed in %.1f s; state %s, %s written",
			name, receipt.Tokens.Total, receipt.Tokens.Restored, receipt.Tokens.Computed, receipt.Seconds.Total,
			size(receipt.StateBytes), size(receipt.WrittenBytes))
	}
	_, err = fmt.Fprintln(a.out, receipt.Handle)
	return err
}

// predicted is how large the state of a document will be.
type predicted struct {
	Tokens     int   `json:"tokens"`
	StateBytes int64 `json:"state_bytes"` // at most: rows that trail the tokens are counted whole
	FixedBytes int64 `json:"fixed_bytes"` // of it, whatever the length
	IDsBytes   int64 `json:"ids_bytes"`   // of the token ids alone
}

// prediction of a document of so many tokens.
func (s *session) prediction(tokens int) predicted {
	info := s.model.engine.Info()
	p := predicted{Tokens: tokens, FixedBytes: int64(info.FixedBytes), IDsBytes: idsBytes(tokens)}
	p.StateBytes = p.FixedBytes + int64(tokens)*int64(info.BytesPerToken)
	return p
}

// predict says what an ingest would store.
func (s *session) predict(tokens []engine.Token, f ingestFlags) error {
	if err := s.admit(tokens, f.capacity); err != nil {
		return err
	}
	p := s.prediction(len(tokens))
	if f.asJSON {
		return json.NewEncoder(s.app.out).Encode(p)
	}
	_, err := fmt.Fprintf(s.app.out, "%d tokens, a state of %s: %s of it for any document, %s a token; their ids alone (--keep-state none) take %s\n",
		p.Tokens, size(p.StateBytes), size(p.FixedBytes), size(int64(s.model.engine.Info().BytesPerToken)), size(p.IDsBytes))
	return err
}

// closeNoted closes the session; what goes wrong then cannot change the result, so it is only said.
func (s *session) closeNoted() {
	if err := s.Close(); err != nil {
		s.app.note("lector: close: %s", oneLine(err))
	}
}

// outcome is what an ingest prints as JSON. Adopted says that an earlier job of the same order had done it all:
// then nothing was computed or written now.
type outcome struct {
	worker.Receipt
	Adopted bool `json:"adopted"`
}

// adopt is the outcome of a job that was done before.
func adopt(r worker.Receipt) outcome {
	if r.Tokens.Unread == 0 {
		r.Tokens = worker.TokenCounts{Total: r.Tokens.Total, Restored: r.Tokens.Total}
	}
	r.WrittenBytes, r.Seconds, r.Engine = 0, worker.IngestSeconds{}, engine.ChunkStats{}
	return outcome{Receipt: r, Adopted: true}
}

// ingest has a document read. A finished job of the same order is adopted while its handle still holds;
// otherwise the document is read again.
func (s *session) ingest(ctx context.Context, tokens []engine.Token, name string, f ingestFlags) (outcome, error) {
	if err := s.admit(tokens, f.capacity); err != nil {
		return outcome{}, err
	}
	order := worker.IngestOptions{Tokens: len(tokens), Name: name, Capacity: f.capacity, TTL: f.ttl, Submitted: time.Now()}
	var err error
	if order.KeepState, err = f.keep.order(); err != nil {
		return outcome{}, err
	}
	status, err := s.client().Ingest(ctx, s.identity, tokens, order)
	if err != nil {
		return outcome{}, err
	}
	if s.isAgain(status.Job, order) {
		s.app.note("the earlier handle of this document no longer holds; reading it again")
	}
	if status.State == queue.Done {
		receipt, err := result[worker.Receipt](status)
		return adopt(receipt), err
	}
	if !f.keep.none() {
		p := s.prediction(len(tokens))
		s.app.note("%s: a state of at most %s; its ids alone (--keep-state none) would take %s", name, size(p.StateBytes), size(p.IDsBytes))
	}
	p := newProgress(s.app)
	status, err = s.follow(ctx, status.Job, p.heard)
	p.end()
	if err != nil && ctx.Err() != nil && !s.served(queue.Ingest) {
		s.app.note("stopped after the last whole chunk; the same command goes on from there")
	}
	if err != nil {
		return outcome{}, err
	}
	receipt, err := result[worker.Receipt](status)
	return outcome{Receipt: receipt}, err
}

// isAgain says that a job is not the first of its order.
func (s *session) isAgain(job queue.Job, order worker.IngestOptions) bool {
	d, err := cache.ParseDigest(job.Ingest.Document)
	return err == nil && worker.NewIngest(s.identity, d, order).ID != job.ID
}

// result decodes the result of a finished job.
func result[T any](status queue.Status) (T, error) {
	var r T
	if err := json.Unmarshal(status.Result, &r); err != nil {
		return r, fmt.Errorf("decode result of job %s: %w", status.Job.ID, err)
	}
	return r, nil
}

// admit refuses what the engine would, before anything is stored.
func (s *session) admit(tokens []engine.Token, capacity int) error {
	info := s.model.engine.Info()
	if capacity < 0 || capacity > info.MaxTokens {
		return badInput(fmt.Errorf("--capacity %d: model %s takes 1 to %d tokens", capacity, info.Name, info.MaxTokens))
	}
	if capacity == 0 {
		capacity = info.MaxTokens
	}
	if len(tokens) > capacity {
		return badInput(fmt.Errorf("%d tokens are more than the capacity of %d", len(tokens), capacity))
	}
	for i, t := range tokens {
		if t < 0 || int(t) >= info.Vocabulary {
			return badInput(fmt.Errorf("token id %d at position %d: model %s has ids 0 to %d", t, i, info.Name, info.Vocabulary-1))
		}
	}
	return nil
}

// size prints bytes for people.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return strconv.FormatFloat(float64(n)/1e9, 'f', 2, 64) + " GB"
	case n >= 1e6:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB"
	case n >= 1e3:
		return strconv.FormatFloat(float64(n)/1e3, 'f', 1, 64) + " KB"
	}
	return strconv.FormatInt(n, 10) + " B"
}
