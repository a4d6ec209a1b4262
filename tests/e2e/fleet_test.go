package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// fleet is a NATS server and a store, and any number of places that share nothing else.
type fleet struct {
	t            *testing.T
	model, store string
	nats         string
}

func newFleet(t *testing.T, model string) fleet {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	f := fleet{t, model, t.TempDir(), s.ClientURL()}
	f.host().must("queue", "init")
	return f
}

// host is a machine of the fleet.
func (f fleet) host() place {
	f.t.Helper()
	p := newPlace(f.t, f.model)
	p.flags = []string{"--nats", f.nats, "--store", f.store}
	return p
}

// Two workers and a client that loads no model; one worker is killed in the middle of a text, and the other tells the
// rest of the same text.
func TestKilledWorkerIsFollowedByAnother(t *testing.T) {
	f := newFleet(t, fixture(t, "tiny"))
	var ids []int
	for i := range 700 {
		ids = append(ids, (i*7+i/13)%300)
	}
	first := f.host().worker("--ack-wait", "3s", "--log-level", "debug")
	client := f.host()
	handle := client.ingest(writeIDs(t, ids)).Handle
	ask := []string{handle, "--tokens", "3,4,5", "--max-tokens", "300", "--temperature", "2", "--seed", "9", "--n", "2", "--pieces"}
	want := pieces(t, client.must(append([]string{"resume"}, ask...)...))
	if len(want) != 2 || want[0] == want[1] || strings.Count(want[0], ",") < 20 {
		t.Fatalf("texts %q: choose another document", want)
	}

	job := client.must(append([]string{"resume", "--detach"}, ask[:len(ask)-1]...)...)
	heard := make(chan output, 1)
	go func() { heard <- client.run("resume", "--attach", job, "--pieces") }()
	first.hear("tokens\t{\"job\": \"" + job)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.exit()
	f.host().worker("--ack-wait", "3s")
	o := <-heard
	if o.code != 0 {
		t.Fatalf("attached: exit code %d: %s", o.code, o.err)
	}
	if got := pieces(t, o.out); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("attached through two workers: %v\nfrom one worker: %v", got, want)
	}
	if !strings.Contains(o.out, `"attempt":2`) {
		t.Log("the text was there before the worker was killed")
	}
	if again := pieces(t, client.must("resume", "--attach", job, "--pieces")); fmt.Sprint(again) != fmt.Sprint(want) {
		t.Errorf("attached afterwards: %v", again)
	}
	if entries, err := os.ReadDir(client.data); err == nil && len(entries) > 0 {
		t.Errorf("the client made %v in its data folder", entries)
	}
}

// pieces joins a stream of pieces to the ids of each branch, and checks that none is missing or repeated.
func pieces(t *testing.T, lines string) []string {
	t.Helper()
	var all [][]int
	for line := range strings.Lines(lines) {
		p := decode[struct {
			Branch, First int
			IDs           []int
		}](t, line)
		for len(all) <= p.Branch {
			all = append(all, nil)
		}
		if p.First != len(all[p.Branch]) {
			t.Fatalf("branch %d goes on at %d after %d tokens", p.Branch, p.First, len(all[p.Branch]))
		}
		all[p.Branch] = append(all[p.Branch], p.IDs...)
	}
	var out []string
	for _, ids := range all {
		out = append(out, strings.ReplaceAll(fmt.Sprint(ids), " ", ","))
	}
	return out
}

// A worker that is told to stop finishes its chunk and gives the document back; another goes on from there at once.
func TestDrainedWorkerIsFollowedByAnother(t *testing.T) {
	f := newFleet(t, fixture(t, "tiny"))
	file := document(t, 6*grid+9, 5)
	first := f.host().worker("--kinds", "ingest", "--log-level", "debug")
	done := make(chan output, 1)
	client := f.host()
	go func() { done <- client.run("ingest", "--json", "--tokens", file) }()
	first.hear("progress")
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := first.exit(); code != 0 {
		said, _ := first.words()
		t.Errorf("exit code %d:\n%s", code, said)
	}
	first.hear("drained")
	said, _ := first.words()
	finished := strings.Contains(said, `"class": "done"`) // before it was told to stop
	f.host().worker("--kinds", "ingest")
	o := <-done
	if o.code != 0 {
		t.Fatalf("exit code %d: %s", o.code, o.err)
	}
	got := decode[receipt](t, o.out)
	calm := newPlace(t, f.model).ingest(file)
	if got.Handle != calm.Handle || got.Tokens.Restored == 0 && !finished || got.Tokens.Restored%grid != 0 {
		t.Errorf("handle %s of %+v, a calm run has %s", got.Handle, got.Tokens, calm.Handle)
	}
}

// A second signal does not wait for the chunk.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	w := p.worker("--kinds", "ingest", "--log-level", "debug")
	done, file := make(chan output, 1), document(t, 8*grid, 5)
	go func() { done <- p.run("ingest", "--tokens", file) }()
	w.hear(fmt.Sprintf(`"tokens": %d,`, 2*grid)) // the cell before it is in the store by then
	for range 2 {
		if err := w.Process.Signal(syscall.SIGTERM); err != nil {
			break // it ended between the two, having finished its chunk
		}
		time.Sleep(time.Millisecond)
	}
	w.exit()
	if o := <-done; o.code != 0 {
		t.Errorf("who waited for the worker exits with %d: %s", o.code, o.err)
	}
	// Either way the next owner of the folder finds what was stored.
	if got := p.ingest(file); got.Tokens.Restored == 0 {
		t.Errorf("after two signals: %+v", got.Tokens)
	}
}

// Texts that one engine makes by turns, while it reads a document, are those that it makes alone.
func TestManyTextsAtOnce(t *testing.T) {
	f := newFleet(t, fixture(t, "odd"))
	f.host().worker("--slots", "3")
	client := f.host()
	var ids []int
	for i := range 600 {
		ids = append(ids, (i*11+i/7)%310)
	}
	handle := client.ingest(writeIDs(t, ids)).Handle
	var asks [][]string
	for i := range 5 {
		asks = append(asks, []string{"resume", handle, "--tokens", fmt.Sprint(i + 3), "--max-tokens", "20", "--drafts", fmt.Sprint(i % 4), "--temperature", "2", "--seed", fmt.Sprint(i), "--n", fmt.Sprint(1 + i%2), "--pieces"})
	}
	var want []string
	for _, ask := range asks {
		want = append(want, fmt.Sprint(pieces(t, client.must(ask...))))
	}
	reading := make(chan output, 1)
	go func() { reading <- client.run("ingest", "--tokens", document(t, 3*grid, 7)) }()
	got := make([]output, len(asks))
	var all sync.WaitGroup
	for i, ask := range asks {
		all.Go(func() { got[i] = client.run(ask...) })
	}
	all.Wait()
	for i, o := range got {
		if o.code != 0 {
			t.Errorf("text %d: exit code %d: %s", i, o.code, o.err)
		} else if text := fmt.Sprint(pieces(t, o.out)); text != want[i] {
			t.Errorf("text %d by turns: %s\nalone: %s", i, text, want[i])
		}
	}
	if o := <-reading; o.code != 0 {
		t.Errorf("the document: exit code %d: %s", o.code, o.err)
	}
}
