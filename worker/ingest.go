package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"lector/cache"
	"lector/engine"
	"lector/queue"
)

// errVanished says that stored state went away between finding it and reading it: looked for again, there is less.
var errVanished = errors.New("stored state vanished")

// ingest is one document on its way from tokens to a handle.
type ingest struct {
	*attempt
	order    *queue.IngestOrder
	document cache.Digest
	tokens   []int32
	cells    []Cell
	keys     []cache.Key     // of the cells' ends
	nodes    []cache.Node    // of the cells that are finished: stored, or the last one on its way
	seq      engine.Sequence // holds the state at their end; nil while nothing is to be computed
	wanted   []int           // cells at whose end the order wants a handle that is still to come
	pending  *upload         // of the last of nodes, while it is on its way into the store
	beyond   bool            // cells are stored that nothing can go on from
	made     *cache.Last     // what was stored with the last of nodes; nil: nothing
	receipt  Receipt
}

// ingest reads a document and publishes a handle for its state.
func (a *attempt) ingest(ctx context.Context) (_ Receipt, err error) {
	in := &ingest{attempt: a, order: a.job.Ingest}
	handle := in.askHandle(ctx)
	unread := in.open(ctx)
	published, err := in.published(ctx, <-handle)
	if err != nil || published {
		return in.receipt, err
	}
	if unread != nil {
		return Receipt{}, unread
	}
	defer func() { err = errors.Join(err, in.landed(ctx), in.replace(nil)) }()
	err = in.read(ctx)
	var end *endError
	if errors.As(err, &end) {
		if err := in.partial(ctx); err != nil {
			return Receipt{}, err
		}
		return in.receipt, end
	}
	if err == nil {
		err = in.publish(ctx)
	}
	if err != nil {
		return Receipt{}, err
	}
	return in.receipt, nil
}

// whole is what the document's handle is to hold.
func (in *ingest) whole() kept {
	if in.order.KeepState == queue.KeepNone {
		return kept{tokens: in.tokens}
	}
	return kept{nodes: in.nodes, made: in.made}
}

// read brings every cell of the document into the store. A handle of token ids alone wants none.
func (in *ingest) read(ctx context.Context) error {
	if in.order.KeepState == queue.KeepNone {
		if err := in.drained(); err != nil {
			return err
		}
		in.receipt.Tokens.Unread = len(in.tokens)
		return in.handlesOnTheWay(ctx)
	}
	if err := in.catchUp(ctx); err != nil {
		return err
	}
	for len(in.nodes) < len(in.cells) {
		if err := in.handlesOnTheWay(ctx); err != nil {
			return err
		}
		if err := in.cell(ctx); err != nil {
			return err
		}
	}
	if err := in.landed(ctx); err != nil {
		return err
	}
	return in.handlesOnTheWay(ctx)
}

// askedHandle is the answer to askHandle.
type askedHandle struct {
	body []byte
	err  error
}

// askHandle looks for the handle of the job while the document is read.
func (in *ingest) askHandle(ctx context.Context) <-chan askedHandle {
	out := make(chan askedHandle, 1)
	go func() {
		body, err := in.Queue.Handle(ctx, in.job.ID)
		out <- askedHandle{body, err}
	}()
	return out
}

// published takes the handle of an earlier attempt that got that far, and makes the receipt from it: nothing of
// that attempt's work is known but its outcome.
func (in *ingest) published(ctx context.Context, handle askedHandle) (bool, error) {
	if errors.Is(handle.err, queue.ErrUnknown) {
		return false, nil
	}
	if handle.err != nil {
		return false, fmt.Errorf("look for the handle of job %s: %w", in.job.ID, handle.err)
	}
	h, err := cache.DecodeHandle(handle.body)
	if err != nil {
		return false, fmt.Errorf("read the published handle of job %s: %w", in.job.ID, err)
	}
	m, err := in.Space.Manifest(ctx, h.Manifest)
	if err != nil {
		return false, fmt.Errorf("read what the published handle of job %s names: %w", in.job.ID, err)
	}
	in.receipt.Document = in.order.Document
	in.receipt.Tokens = TokenCounts{Total: h.Tokens, Restored: h.Tokens}
	if m.TokensOnly() {
		in.receipt.Tokens = TokenCounts{Total: h.Tokens, Unread: h.Tokens}
	}
	in.receipt.Chunks = len(m.Chunks)
	in.sign(h, m)
	if err := in.own(ctx); err != nil {
		return false, err
	}
	if !m.TokensOnly() {
		in.meter().Looked(Lookup{Tokens: h.Tokens, Gained: h.Tokens, Total: h.Tokens})
	}
	return true, in.Space.DropRolling(ctx, in.job.ID, nil)
}

// open loads the document and plans the reading of it.
func (in *ingest) open(ctx context.Context) (err error) {
	if err := in.fitsDisk(in.order); err != nil {
		return err
	}
	if in.document, err = cache.ParseDigest(in.order.Document); err != nil {
		return fmt.Errorf("order names the document: %w: %w", ErrInput, err)
	}
	if in.tokens, err = in.Space.Document(ctx, in.document); err != nil {
		return err
	}
	info, grid := in.Engine.Info(), in.identity.Grid
	if n := in.order.Tokens; n != 0 && n != len(in.tokens) {
		return fmt.Errorf("order says %d tokens, document %s has %d: %w", n, in.document, len(in.tokens), ErrInput)
	}
	if limit := in.capacity(in.order.Capacity); len(in.tokens) > limit {
		return fmt.Errorf("document of %d tokens, capacity of %d: %w", len(in.tokens), limit, engine.ErrTooLong)
	}
	for i, id := range in.tokens {
		if int(id) >= info.Vocabulary {
			return fmt.Errorf("token %d of the document is %d, vocabulary of %d: %w", i, id, info.Vocabulary, engine.ErrToken)
		}
	}
	in.cells = Plan(len(in.tokens), grid, info.MaxChunk, in.config.KeepSpread)
	in.wanted = markEarly(in.cells, in.order.HandleAt)
	in.keys = cache.Keys(in.identity.Producer, in.tokens, cache.Boundaries(len(in.tokens), grid))
	in.receipt.Document, in.receipt.Chunks = in.order.Document, len(in.cells)
	in.receipt.Tokens.Total = len(in.tokens)
	return nil
}

// done is how many tokens of the document are stored with their state.
func (in *ingest) done() int {
	if len(in.nodes) == 0 {
		return 0
	}
	return in.nodes[len(in.nodes)-1].To
}

// replace closes the sequence and goes on with another.
func (in *ingest) replace(fresh engine.Sequence) error {
	old := in.seq
	in.seq = fresh
	if old == nil {
		return nil
	}
	return old.Close()
}

// catchUp takes the deepest stored state of this prefix, when it is deeper than what is done. Nothing is restored
// when no cell is left to compute: publishing checks what the handle will need.
func (in *ingest) catchUp(ctx context.Context) error {
	before := in.done()
	err := in.lap(ctx, "restore", &in.receipt.Seconds.Restore, func(ctx context.Context) error {
		n, nodes, err := in.Space.Deepest(ctx, in.job.ID, in.keys)
		if err != nil {
			return fmt.Errorf("look for stored state: %w", err)
		}
		if n <= len(in.nodes) {
			return nil
		}
		if n < len(in.cells) {
			if err := in.restore(ctx, nodes); err != nil {
				return err
			}
		}
		in.nodes = nodes
		in.reached(nodes[n-1].To)
		return nil
	})
	if err == nil {
		in.meter().Looked(Lookup{Tokens: in.done(), Gained: in.done() - before, Total: len(in.tokens)})
	}
	if err != nil || in.done() == before {
		return err
	}
	in.receipt.Tokens.Restored += in.done() - before
	return in.tellSoon(ctx, queue.Event{Type: queue.EventRestored, Tokens: in.done(), Total: len(in.tokens)})
}

// restore puts the state at the end of a chain of nodes into a fresh sequence, and goes on with that one.
func (in *ingest) restore(ctx context.Context, nodes []cache.Node) error {
	m, err := cache.NewManifest(in.identity, nodes)
	if err != nil {
		return err
	}
	if err := in.replace(nil); err != nil { // first: two states at once may not fit
		return err
	}
	fresh, err := in.Engine.NewSequence(len(in.tokens))
	if err != nil {
		return err
	}
	err = in.metered(m.Tokens, func() (int64, error) {
		return restore(ctx, fresh, restoreArgs{space: in.Space, manifest: m, job: in.job.ID, tokens: in.tokens[:m.Tokens]})
	})
	if errors.Is(err, cache.ErrNotFound) {
		err = fmt.Errorf("%w: %w", errVanished, err)
	}
	if err != nil {
		return errors.Join(err, fresh.Close())
	}
	return in.replace(fresh)
}

// cell computes the next cell and has it stored, or takes it from a worker that did so meanwhile. Where the space can
// stage it, the store takes it while the next one is computed, and that one is finished only when it has (promise 8).
func (in *ingest) cell(ctx context.Context) error {
	if err := in.drained(); err != nil {
		return in.landedOr(ctx, err)
	}
	i := len(in.nodes)
	claim := "node-" + in.keys[i].String()
	waited, err := in.claim(ctx, claim)
	if err != nil {
		return in.landedOr(ctx, err)
	}
	claimed := true
	defer func() {
		if claimed {
			in.unclaim(ctx, claim)
		}
	}()
	stored := false
	if !waited {
		if stored, err = in.storedMeanwhile(ctx, i); err != nil {
			return err
		}
	}
	if waited || stored {
		if err := in.catchUp(ctx); err != nil {
			return err
		}
		if len(in.nodes) > i {
			return nil
		}
		in.beyond = stored
	}
	stats, probe, err := in.compute(ctx, in.cells[i])
	if err != nil {
		return err
	}
	if err := in.landed(ctx); err != nil {
		return err
	}
	step := in.step(i, probe)
	if i == len(in.cells)-1 || !in.Space.CanStage() { // nothing is computed behind the last one
		err = in.lap(ctx, "store", &in.receipt.Seconds.Store, func(ctx context.Context) error { return in.store(ctx, step) })
	} else {
		err = in.lap(ctx, "stage", &in.receipt.Seconds.Store, func(context.Context) error {
			return in.stage(ctx, step, claim) // what it begins goes on after the lap
		})
		claimed = err != nil
	}
	if err != nil {
		return err
	}
	return in.progress(ctx, stats)
}

// landedOr is err, once the cell before is stored: work that stops leaves nothing behind that it could have stored.
func (in *ingest) landedOr(ctx context.Context, err error) error {
	if lost := in.landed(ctx); lost != nil {
		return lost
	}
	return err
}

// compute prefills one cell. The probe is what the trunk says at its end, whatever token comes next.
func (in *ingest) compute(ctx context.Context, c Cell) (stats engine.ChunkStats, probe engine.Probe, err error) {
	err = in.lap(ctx, "prefill", &in.receipt.Seconds.Prefill, func(ctx context.Context) error {
		in.drawn(ctx, c.From, c.To)
		if in.seq == nil {
			if in.seq, err = in.Engine.NewSequence(len(in.tokens)); err != nil {
				return err
			}
		}
		from := c.From
		for _, to := range c.Cuts {
			step, err := in.seq.Prefill(ctx, in.tokens[from:to], nil)
			if err != nil {
				return fmt.Errorf("read tokens [%d, %d): %w", from, to, err)
			}
			stats, probe, from = stats.Add(step.Stats), step.Probe, to
		}
		return nil
	})
	in.receipt.Engine = in.receipt.Engine.Add(stats)
	in.meter().Computed(queue.Ingest, stats)
	return stats, probe, err
}

// step describes a computed cell.
func (in *ingest) step(i int, probe engine.Probe) cache.StepArgs {
	c := in.cells[i]
	step := cache.StepArgs{Key: in.keys[i], From: c.From, To: c.To, Tokens: in.tokens[c.From:c.To], Probe: storedProbe(probe), Keep: c.Keep}
	if i > 0 {
		step.Parent = in.keys[i-1]
	}
	return step
}

// store makes a computed cell durable, the last one with manifest and handle, and then gives up the rolling state that it
// supersedes.
func (in *ingest) store(ctx context.Context, step cache.StepArgs) (err error) {
	in.drawn(ctx, step.From, step.To)
	var last cache.Last
	if step.To < len(in.tokens) {
		last.Node, last.Written, err = in.putStep(ctx, in.seq, step)
	} else {
		last, err = in.putLast(ctx, in.seq, lastStep{step, in.nodes, in.order.TTL})
	}
	if last.Node.To != step.To { // else the cell is stored, whatever became of the handle
		return err
	}
	in.nodes = append(in.nodes, last.Node)
	in.reached(step.To)
	in.count(last.Node, last.Written)
	if err != nil {
		return err
	}
	if step.To == len(in.tokens) {
		in.made = &last
	}
	return in.dropSuperseded(ctx, last.Node)
}

// stage makes a computed cell safe outside of the store, and has the store take it from there.
func (in *ingest) stage(ctx context.Context, args cache.StepArgs, claim string) error {
	args, err := in.export(in.seq, args)
	if err != nil {
		return err
	}
	step, err := in.Space.Stage(ctx, args)
	if err != nil {
		return err
	}
	in.nodes = append(in.nodes, step.Node)
	in.begin(ctx, step, claim)
	return nil
}

// putStep stores the state that seq holds as the node of one cell.
func (a *attempt) putStep(ctx context.Context, seq engine.Sequence, step cache.StepArgs) (cache.Node, cache.Written, error) {
	step, err := a.export(seq, step)
	if err != nil {
		return cache.Node{}, cache.Written{}, err
	}
	return a.Space.PutStep(ctx, step)
}

// lastStep is the last step of a document, behind the nodes before it, and how long its handle is good.
type lastStep struct {
	cache.StepArgs
	before []cache.Node
	ttl    time.Duration
}

// putLast is putStep, and stores a handle with it. After an error the node may be stored: it is not zero then.
func (a *attempt) putLast(ctx context.Context, seq engine.Sequence, l lastStep) (cache.Last, error) {
	step, err := a.export(seq, l.StepArgs)
	if err != nil {
		return cache.Last{}, err
	}
	return a.Space.PutLast(ctx, step, l.before, a.handler(l.ttl))
}

// export completes a step with the state that seq holds, which it shares.
func (a *attempt) export(seq engine.Sequence, step cache.StepArgs) (cache.StepArgs, error) {
	if int(seq.Pos()) != step.To { // promise 7
		return step, fmt.Errorf("store state at %d: sequence holds %d tokens: %w", step.To, seq.Pos(), engine.ErrState)
	}
	regions, err := seq.Regions()
	if err != nil {
		return step, fmt.Errorf("export state at %d: %w", step.To, err)
	}
	step.Identity, step.Job, step.Regions = a.identity, a.job.ID, storedRegions(regions)
	return step, nil
}

// count adds one stored cell to the receipt.
func (in *ingest) count(n cache.Node, w cache.Written) {
	tokens := n.To - n.From
	in.receipt.Tokens.Computed += tokens
	in.receipt.WrittenBytes += w.Bytes
	in.receipt.ReusedBytes += w.ReusedBytes
	rows := int64(0)
	for _, b := range n.Rows {
		rows += b.Size
	}
	deduped := rows > 0 && w.ReusedBytes >= rows
	if deduped {
		in.receipt.Tokens.Deduped += tokens
	}
	in.meter().Stored(Stored{Tokens: tokens, WrittenBytes: w.Bytes, ReusedBytes: w.ReusedBytes, Deduped: deduped})
}

func (in *ingest) progress(ctx context.Context, stats engine.ChunkStats) error {
	body, err := json.Marshal(stats)
	if err != nil {
		return fmt.Errorf("encode statistics: %w", err)
	}
	return in.tellSoon(ctx, queue.Event{Type: queue.EventProgress, Tokens: in.done(), Total: len(in.tokens), Stats: body})
}

// publish turns the chain of nodes into a handle that others can see: manifest, handle, then the queue's word.
func (in *ingest) publish(ctx context.Context) error {
	var m cache.Manifest
	var h cache.Handle
	err := in.lap(ctx, "publish", &in.receipt.Seconds.Store, func(ctx context.Context) (err error) {
		m, h, err = in.putHandle(ctx, in.whole(), in.order.TTL)
		if err != nil {
			return err
		}
		return in.Space.DropRolling(ctx, in.job.ID, nil)
	})
	if err != nil {
		return err
	}
	in.sign(h, m)
	return nil
}

// sender says in the receipt whose it is.
func (in *ingest) sender() {
	in.receipt.Name, in.receipt.Host, in.receipt.Attempt = in.order.Name, in.Host, in.delivery.Attempt()
	in.receipt.StoreSync = in.Config.StoreSync
}

// sign completes the receipt.
func (in *ingest) sign(h cache.Handle, m cache.Manifest) {
	d := cache.Sum(h.Encode())
	in.sender()
	in.receipt.Handle, in.receipt.HandleDigest, in.receipt.StateBytes = cache.HandleName(d), d.String(), m.Bytes
	if !h.Expires.IsZero() {
		in.receipt.Expires = &h.Expires
	}
	in.receipt.Seconds.close(in.now().Sub(in.started))
}
