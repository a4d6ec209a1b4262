package damage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lector/cache"
	"lector/cache/cachetest"
	"lector/cache/gc"
	"lector/cache/sign"
	"lector/cache/tag"
)

// errWrong says that damaged bytes were taken for good ones and led to a wrong answer.
var errWrong = errors.New("wrong state")

// kind is a folder of stored objects, and how an object of it is read.
type kind struct {
	object func(w *world) string // the victim
	other  func(w *world) string // one more of its kind
	read   func(ctx context.Context, w *world) error
	names  func(w *world) errorsName
	// harmless says that bytes of this kind decide nothing: reading may go on as if they were right or gone, and does
	// so with the right outcome.
	harmless bool
	mayGo    bool // its absence is no damage
}

// kinds has a row for every folder that the packages of cache write to, named as the folder or, where objects of one folder
// are of several forms, "folder of form"; TestEveryKindIsHere holds it against the sources.
func kinds() map[string]kind {
	return map[string]kind{
		"blobs":            {object: blobOf(false), other: otherBlob, read: restore, names: named(blobOf(false))},
		"blobs of ids":     {object: idsBlobOf(0), other: idsBlobOf(1), read: readIDs, names: named(idsBlobOf(0))},
		"manifests of ids": {object: idsManifestOf(0), other: idsManifestOf(1), read: readIDs, names: named(idsManifestOf(0))},
		"handles of ids":   {object: idsHandleOf(0), other: idsHandleOf(1), read: readIDs, names: idsHandleNames},
		"rolling":          {object: rollingOf, other: otherRolling, read: restoreRolling, names: rollingNames},
		"documents":        {object: documentOf(0), other: documentOf(1), read: readDocument, names: named(documentOf(0))},
		"keep":             {object: keepOf(0), other: keepOf(1), read: keepAgain, names: named(keepOf(0)), harmless: true, mayGo: true},
		"nodes":            {object: nodeOf(0), other: nodeOf(1), read: deepest, names: named(nodeOf(0)), mayGo: true},
		"manifests":        {object: manifestOf(0), other: manifestOf(1), read: readManifest, names: named(manifestOf(0))},
		"handles":          {object: handleOf(0), other: handleOf(1), read: readHandle, names: handleNames},
		"results":          {object: resultOf("job-1"), other: resultOf("job-2"), read: readResult, names: named(resultOf("job-1"))},
		"tags":             {object: tagOf("first"), other: tagOf("second"), read: findTag, names: func(*world) errorsName { return errorsName{"tag first", `"first"`} }},
		"signatures":       {object: signatureOf(0), other: signatureOf(1), read: verifySignature, names: handleNames},
		"gc":               {object: marksOf, other: clockOf, read: collect, names: func(*world) errorsName { return errorsName{"marks"} }, harmless: true, mayGo: true},
	}
}

// fill puts objects of every kind into a new world.
func (w *world) fill(ctx context.Context) error {
	var err error
	if w.key, err = sign.Generate(bytes.NewReader(bytes.Repeat([]byte{9}, 64))); err != nil {
		return err
	}
	for i, d := range []*cachetest.Document{w.one, w.two} {
		if w.handle[d], w.whole[d], err = d.Read(ctx); err != nil {
			return err
		}
		if w.ids[d], w.idsOnly[d], err = w.putIDs(ctx, d); err != nil {
			return err
		}
		_, err = w.space.PutDocument(ctx, d.Tokens)
		if err := errors.Join(err, tag.Set(ctx, w.space, []string{"first", "second"}[i], w.handle[d]), sign.Sign(ctx, w.space, w.handle[d], w.key)); err != nil {
			return err
		}
		if _, err := w.space.PutResult(ctx, d.Job, []byte(fmt.Sprintf(`{"text":"of %s"}`, d.Job))); err != nil {
			return err
		}
	}
	if w.begun, err = w.half.Steps(ctx, 1); err != nil {
		return err
	}
	fourth := *w.half
	fourth.Job, fourth.Tokens = "job-4", cachetest.Count(9000, tokens)
	if _, err := fourth.Steps(ctx, 1); err != nil {
		return err
	}
	_, err = gc.Run(ctx, w.space, gc.Options{Open: open})
	return err
}

// open keeps the jobs that stopped midway.
func open(context.Context) (gc.Open, error) { return gc.Open{Jobs: []string{"job-3", "job-4"}}, nil }

// docs are the two documents that were read whole.
func (w *world) docs() []*cachetest.Document { return []*cachetest.Document{w.one, w.two} }

func name(folder, last string) string { return cache.DefaultTenant + "/" + folder + "/" + last }

// named is an error that says the object's name.
func named(object func(*world) string) func(*world) errorsName {
	return func(w *world) errorsName { return errorsName{object(w)} }
}

// manifest is that of a document that was read whole, as it was made.
func (w *world) manifest(d *cachetest.Document) cache.Manifest { return w.whole[d] }

func blobOf(state bool) func(*world) string {
	return func(w *world) string {
		m := w.manifest(w.one)
		if state {
			return name("blobs", m.State[0].Digest.String())
		}
		return name("blobs", m.Chunks[1].Rows[0].Digest.String())
	}
}

func otherBlob(w *world) string {
	return name("blobs", w.manifest(w.two).Chunks[1].Rows[0].Digest.String())
}

func keys(d *cachetest.Document) []cache.Key {
	id := d.Identity()
	return cache.Keys(id.Producer, d.Tokens, cache.Boundaries(len(d.Tokens), id.Grid))
}

func nodeOf(i int) func(*world) string {
	return func(w *world) string { return name("nodes", keys(w.docs()[i])[1].String()) }
}

// keepOf is the mark of a document's last node.
func keepOf(i int) func(*world) string {
	return func(w *world) string { return name("keep", lastKey(w.docs()[i]).String()) }
}

func lastKey(d *cachetest.Document) cache.Key { k := keys(d); return k[len(k)-1] }

func documentOf(i int) func(*world) string {
	return func(w *world) string { return name("documents", documentDigest(w.docs()[i]).String()) }
}

// documentDigest names a document's token ids.
func documentDigest(d *cachetest.Document) cache.Digest {
	digest, err := (&cache.Space{Store: cachetest.NewMemory()}).PutDocument(context.Background(), d.Tokens)
	if err != nil {
		panic(err) // a memory store takes everything
	}
	return digest
}

func manifestOf(i int) func(*world) string {
	return func(w *world) string { return nameOfManifest(w.manifest(w.docs()[i])) }
}

func nameOfManifest(m cache.Manifest) string {
	b, err := m.Encode()
	if err != nil {
		panic(err) // it was encoded before
	}
	return name("manifests", cache.Sum(b).String())
}

func handleOf(i int) func(*world) string {
	return func(w *world) string { return name("handles", w.handle[w.docs()[i]].String()) }
}

func handleNames(w *world) errorsName {
	return errorsName{cache.HandleName(w.handle[w.one]), handleOf(0)(w), w.key.Public().ID()}
}

func resultOf(job string) func(*world) string {
	return func(*world) string { return name("results", job) }
}

func tagOf(tag string) func(*world) string {
	return func(*world) string { return name("tags", tag) }
}

func signatureOf(i int) func(*world) string {
	return func(w *world) string {
		return name("signatures", w.handle[w.docs()[i]].String()+"/"+w.key.Public().ID())
	}
}

func marksOf(*world) string { return name("gc", "marks") }
func clockOf(*world) string { return name("gc", "clock") }

// rolling lists the rolling state of a job.
func rolling(w *world, job string) string {
	for o, err := range w.space.Store.List(context.Background(), cache.DefaultTenant+"/rolling/"+job+"/") {
		if err == nil {
			return o.Name
		}
	}
	return ""
}

func rollingOf(w *world) string    { return name("rolling", "job-3/"+w.begun[0].State[0].Digest.String()) }
func otherRolling(w *world) string { return rolling(w, "job-4") }

// rollingNames are the names that an error about the state at the first boundary may say: it is looked for in two places.
func rollingNames(w *world) errorsName { return errorsName{w.begun[0].State[0].Digest.String()} }

// The reads, each by the public way to the object. What they return as errWrong is a wrong answer.

func restore(ctx context.Context, w *world) error {
	m := w.manifest(w.one)
	if _, err := w.space.Verify(ctx, m); err != nil {
		return err
	}
	return same(ctx, w, m, "", w.one.Tokens)
}

// state is the toy's after the tokens, worked out once.
func (w *world) state(ids []int32) []cache.Region {
	at := [2]int32{ids[0], int32(len(ids))}
	if w.states[at] == nil {
		w.states[at] = cachetest.State(ids)
	}
	return w.states[at]
}

// same restores a manifest and holds the state against the toy's.
func same(ctx context.Context, w *world, m cache.Manifest, job string, tokens []int32) error {
	got := cachetest.Blank(len(tokens))
	if _, err := w.space.Restore(ctx, m, job, tokens, got); err != nil {
		return err
	}
	for i, want := range w.state(tokens) {
		if !bytes.Equal(got[i].Data, want.Data) {
			return fmt.Errorf("region %s: %w", want.Name, errWrong)
		}
	}
	return nil
}

// restoreRolling goes on where a job stopped, from the node that the job has stored.
func restoreRolling(ctx context.Context, w *world) error {
	ends := w.half.Identity().Grid
	m, err := cache.NewManifest(w.half.Identity(), w.begun)
	if err != nil {
		return err
	}
	return same(ctx, w, m, "job-3", w.half.Tokens[:ends])
}

// putIDs stores a handle of token ids alone.
func (w *world) putIDs(ctx context.Context, d *cachetest.Document) (handle cache.Digest, m cache.Manifest, err error) {
	m, digest, err := w.space.PutTokens(ctx, d.Identity(), d.Tokens)
	if err != nil {
		return handle, m, err
	}
	handle, err = w.space.PutHandle(ctx, cache.Handle{
		Version: cache.HandleVersion, Manifest: digest, Model: m.Identity.Model, Tokens: m.Tokens, Tenant: cache.DefaultTenant,
	})
	return handle, m, err
}

// idsBlobOf is a blob of ids in the middle.
func idsBlobOf(i int) func(*world) string {
	return func(w *world) string { return name("blobs", w.idsOnly[w.docs()[i]].Chunks[1].Rows[0].Digest.String()) }
}

func idsManifestOf(i int) func(*world) string {
	return func(w *world) string { return nameOfManifest(w.idsOnly[w.docs()[i]]) }
}

func idsHandleOf(i int) func(*world) string {
	return func(w *world) string { return name("handles", w.ids[w.docs()[i]].String()) }
}

func idsHandleNames(w *world) errorsName {
	return errorsName{cache.HandleName(w.ids[w.one]), idsHandleOf(0)(w)}
}

func readDocument(ctx context.Context, w *world) error {
	got, err := w.space.Document(ctx, documentDigest(w.one))
	if err == nil && fmt.Sprint(got) != fmt.Sprint(w.one.Tokens) {
		return errWrong
	}
	return err
}

// keepAgain stores the last cell again, which wants its mark, and then asks whether the state is still reachable.
func keepAgain(ctx context.Context, w *world) error {
	ends, k := cache.Boundaries(tokens, w.one.Identity().Grid), keys(w.one)
	i := len(ends) - 1
	_, _, err := w.space.PutStep(ctx, cache.StepArgs{
		Identity: w.one.Identity(), Key: k[i], Parent: k[i-1], From: ends[i-1], To: ends[i], Tokens: w.one.Tokens[ends[i-1]:],
		Regions: w.state(w.one.Tokens), Keep: true,
		Probe: cache.Probe{Top: []cache.TopLogit{{ID: int32(i), Logit: float32(ends[i]) / 7}}, Next: w.one.Tokens[tokens-1], Draft: -1},
	})
	if err != nil {
		return err
	}
	return reachable(ctx, w)
}

// reachable wants a collection to take nothing that the documents need.
func reachable(ctx context.Context, w *world) error {
	r, err := gc.Run(ctx, w.space, gc.Options{Open: open})
	if err == nil && r.Deleted.Objects > 0 {
		err = fmt.Errorf("a collection took %+v: %w", r.Kinds, errWrong)
	}
	return err
}

func deepest(ctx context.Context, w *world) error {
	n, nodes, err := w.space.Deepest(ctx, "", keys(w.one))
	if err != nil || n == 0 {
		return err
	}
	m, err := cache.NewManifest(w.one.Identity(), nodes)
	if err != nil {
		return err
	}
	return same(ctx, w, m, "", w.one.Tokens[:m.Tokens])
}

func readManifest(ctx context.Context, w *world) error {
	h, err := w.space.Handle(ctx, w.handle[w.one])
	if err != nil {
		return err
	}
	m, err := w.space.Manifest(ctx, h.Manifest)
	if err != nil {
		return err
	}
	return same(ctx, w, m, "", w.one.Tokens)
}

func readHandle(ctx context.Context, w *world) error {
	h, err := w.space.Handle(ctx, w.handle[w.one])
	if err != nil {
		return err
	}
	if !strings.HasSuffix(manifestOf(0)(w), h.Manifest.String()) {
		return errWrong
	}
	return nil
}

func readResult(ctx context.Context, w *world) error {
	b, err := w.space.Result(ctx, "job-1")
	if err == nil && string(b) != `{"text":"of job-1"}` {
		return errWrong
	}
	return err
}

func findTag(ctx context.Context, w *world) error {
	d, _, err := tag.Find(ctx, w.space, "first")
	if err == nil && d != w.handle[w.one] {
		return errWrong
	}
	return err
}

func verifySignature(ctx context.Context, w *world) error {
	_, err := sign.Verify(ctx, w.space, w.handle[w.one], []sign.Public{w.key.Public()})
	return err
}

// readIDs goes on from a handle of token ids alone: its ids decide what is computed.
func readIDs(ctx context.Context, w *world) error {
	h, err := w.space.Handle(ctx, w.ids[w.one])
	if err != nil {
		return err
	}
	m, err := w.space.Manifest(ctx, h.Manifest)
	if err != nil {
		return err
	}
	if _, err := w.space.Verify(ctx, m); err != nil {
		return err
	}
	got, err := w.space.Tokens(ctx, m)
	if err == nil && (!m.TokensOnly() || !slices.Equal(got, w.one.Tokens)) {
		return errWrong
	}
	return err
}

// collect runs a collection over the damaged marks: they are as good as none, and it says so.
func collect(ctx context.Context, w *world) error {
	return reachable(ctx, w)
}

// foreignTo is an object of another kind.
func foreignTo(kind string, w *world) string {
	switch kind {
	case "manifests":
		return handleOf(0)(w)
	case "manifests of ids":
		return idsHandleOf(0)(w)
	}
	return manifestOf(0)(w)
}
