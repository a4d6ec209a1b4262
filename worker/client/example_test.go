package client_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"lector/cache"
	"lector/cache/dir"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/worker"
	"lector/worker/client"
)

// A service has a document read once and asks two questions of it. Queue, store and worker run in this process; in a
// fleet the queue is jetstream.Open with the address of its NATS servers, and the store cache/s3.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	folder, err := os.MkdirTemp("", "lector-example-")
	check(err)
	defer os.RemoveAll(folder)
	store, err := dir.Open(folder + "/store")
	check(err)
	defer store.Close()
	toy, text := &enginetest.Toy{}, enginetest.ToyTokenizer{}
	model := identity(toy)
	server, err := jetstream.Embedded(ctx, jetstream.Config{Dir: folder + "/queue", Model: model.Model.String()})
	check(err)
	defer server.Close()
	q, err := server.Queue(ctx)
	check(err)
	space := &cache.Space{Store: store}
	ended := make(chan error)
	go func() { // somewhere else
		w := &worker.Worker{Queue: q, Space: space, Engine: toy, Tokenizer: text}
		ended <- w.Serve(ctx, worker.Slots{queue.Ingest: 1, queue.Resume: 2})
	}()

	c := &client.Client{Queue: q, Space: space}
	document, err := text.Encode("The access code of Amber Lighthouse is 48213.")
	check(err)
	job, err := c.Ingest(ctx, model, document, worker.IngestOptions{Name: "facts"})
	check(err)
	receipt, err := c.Receipt(ctx, job.Job.ID)
	check(err)
	fmt.Println("read", receipt.Tokens.Total, "tokens")

	for _, question := range []string{"What is the code?", "Of which lighthouse?"} {
		seed := uint64(7)
		job, err := c.Resume(ctx, queue.ResumeOrder{Handle: receipt.HandleDigest, Text: question, MaxTokens: 8}, worker.ResumeOptions{Seed: &seed})
		check(err)
		for piece, err := range c.Stream(ctx, job.Job.ID, nil) {
			check(err)
			fmt.Print(piece.Text)
		}
		result, err := c.Result(ctx, job.Job.ID)
		check(err)
		fmt.Printf(": %d restored, %d read, %d generated\n", result.Usage.Restored, result.Usage.Prefilled, result.Usage.Generated)
	}
	stop()
	check(<-ended)
	// Output:
	// read 35 tokens
	// ehaedmm: 35 restored, 11 read, 5 generated
	// heteretoqnmt: 35 restored, 16 read, 8 generated
}

// identity is how a store names the toy's states. A service that loads no model takes it from a handle's manifest, or
// from its settings.
func identity(e *enginetest.Toy) cache.Identity {
	id, err := e.Identity()
	check(err)
	var fields []cache.Field
	for _, f := range id.Fields {
		fields = append(fields, cache.Field(f))
	}
	return cache.NewIdentity(fields, id.Class, id.Grid, nil)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
