package jetstream_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"lector/queue"
)

func TestObject(t *testing.T) {
	cfg := config(t.TempDir())
	_, q := serve(t, cfg)
	_, js := raw(t, cfg.Dir)
	store := must(js.CreateObjectStore(t.Context(), natsjs.ObjectStoreConfig{Bucket: "books"}))(t)
	want := strings.Repeat("a long book ", 30_000) // of several messages
	must(store.PutString(t.Context(), "Ünï book.txt", want))(t)
	o := must(q.Object(t.Context(), "books", "Ünï book.txt"))(t)
	if got := must(io.ReadAll(o))(t); string(got) != want {
		t.Fatalf("read %d bytes, not %d", len(got), len(want))
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range [][2]string{{"books", "other"}, {"none", "a"}, {"no bucket", "a"}} {
		if _, err := q.Object(t.Context(), name[0], name[1]); !errors.Is(err, queue.ErrUnknown) {
			t.Errorf("object %v: %v", name, err)
		}
	}
}
