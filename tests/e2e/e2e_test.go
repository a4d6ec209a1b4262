// Package e2e_test drives the built lector as a person does: processes, signals, kills, and damage to what is
// stored between two commands.
package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// grid is the node grid of cpu-f32 in tokens: what a killed run may lose at most.
const grid = 512

// binary is the lector that TestMain builds.
var binary string

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	folder, err := os.MkdirTemp("", "lector-e2e-")
	if err != nil {
		return 0, fmt.Errorf("make a folder for the binary: %w", err)
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "lector")
	if out, err := exec.Command("go", "build", "-o", binary, "lector/cmd/lector").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build lector: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// place is one data folder and the model that its commands use.
type place struct {
	t     *testing.T
	data  string
	model string
	flags []string // of every command
}

func newPlace(t *testing.T, model string) place {
	return place{t: t, data: t.TempDir(), model: model}
}

// fixture is the folder of a checkpoint among the fixtures.
func fixture(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "fixtures", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (p place) command(args ...string) *exec.Cmd {
	c := exec.Command(binary, slices.Concat(args, p.flags, []string{"--data", p.data, "--model", p.model})...)
	c.Env = append(os.Environ(), "HOME="+p.data)
	return c
}

// output is what a command printed and how it ended.
type output struct {
	out, err string
	code     int
}

func (p place) run(args ...string) output {
	p.t.Helper()
	c := p.command(args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("run %v: %v", args, err)
	}
	return output{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// must runs a command that has to succeed and returns its standard output.
func (p place) must(args ...string) string {
	p.t.Helper()
	o := p.run(args...)
	if o.code != 0 {
		p.t.Fatalf("lector %v exits with %d: %s", args, o.code, o.err)
	}
	return strings.TrimSpace(o.out)
}

// receipt is the part of an ingest's receipt that the tests look at.
type receipt struct {
	Handle string `json:"handle"`
	Tokens struct {
		Total    int `json:"total"`
		Restored int `json:"restored"`
		Computed int `json:"computed"`
	} `json:"tokens"`
	WrittenBytes int64 `json:"written_bytes"`
}

func (p place) ingest(file string, args ...string) receipt {
	p.t.Helper()
	return decode[receipt](p.t, p.must(append([]string{"ingest", "--json", "--tokens", file}, args...)...))
}

// answer is the part of a resume's result that the tests look at.
type answer struct {
	IDs   []int `json:"ids"`
	Usage struct {
		Restored  int `json:"restored"`
		Prefilled int `json:"prefilled"`
		Generated int `json:"generated"`
	} `json:"usage"`
	Handle string `json:"handle"`
}

func (p place) resume(handle string, args ...string) answer {
	p.t.Helper()
	return decode[answer](p.t, p.must(append([]string{"resume", handle, "--json"}, args...)...))
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	return v
}

// document writes n token ids drawn from the seed, inside every fixture's vocabulary.
func document(t *testing.T, n int, seed uint64) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = r.IntN(300)
	}
	return writeIDs(t, ids)
}

func writeIDs(t *testing.T, ids []int) string {
	t.Helper()
	b, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "document")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A document that shares a prefix with a stored one is prefilled only from there, and resuming prefills the
// prompt alone.
func TestPrefixIsReused(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	var ids []int
	for i := range 1400 {
		ids = append(ids, (i*7+i/13)%300)
	}
	first := p.ingest(writeIDs(t, ids))
	if first.Tokens.Restored != 0 || first.Tokens.Computed != 1400 {
		t.Errorf("first: %+v", first.Tokens)
	}
	branch := append(append([]int{}, ids[:1100]...), 5, 6, 7)
	second := p.ingest(writeIDs(t, branch))
	if second.Tokens.Restored != 2*grid || second.Tokens.Computed != len(branch)-2*grid {
		t.Errorf("a document with 1100 tokens in common: %+v", second.Tokens)
	}
	a := p.resume(first.Handle, "--tokens", "3,4,5", "--max-tokens", "4")
	if a.Usage.Restored != 1400 || a.Usage.Prefilled != 3 || a.Usage.Generated != 4 {
		t.Errorf("resume: %+v", a.Usage)
	}
}

// Stopping, storing and going on in a new process gives what one process would have: the text after
// document A+B equals that after A, resumed with B, for any number of drafts.
func TestResumedEqualsUninterrupted(t *testing.T) {
	p := newPlace(t, fixture(t, "odd"))
	var ids []int
	for i := range 700 {
		ids = append(ids, (i*11+i/7)%310)
	}
	part := p.ingest(writeIDs(t, ids[:690]))
	whole := p.ingest(writeIDs(t, ids))
	want := p.resume(whole.Handle, "--max-tokens", "24", "--drafts", "0")
	prompt := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids[690:])), ","), "[]")
	for drafts := range 4 {
		got := p.resume(part.Handle, "--tokens", prompt, "--max-tokens", "24", "--drafts", fmt.Sprint(drafts))
		if fmt.Sprint(got.IDs) != fmt.Sprint(want.IDs) {
			t.Errorf("%d drafts: %v, uninterrupted %v", drafts, got.IDs, want.IDs)
		}
	}
	// A kept state of the same tokens is the same state: it has the handle that an ingest of them gave.
	kept := p.resume(part.Handle, "--tokens", prompt, "--max-tokens", "1", "--keep")
	same := p.ingest(writeIDs(t, append(append([]int{}, ids...), kept.IDs...)))
	if kept.Handle != same.Handle {
		t.Errorf("kept as %s, read as %s", kept.Handle, same.Handle)
	}
}

// Killing the process at any moment and running the same ingest again gives the same handle and repeats at
// most one chunk.
func TestKilledAtAnyMoment(t *testing.T) {
	file := document(t, 4*grid+100, 3)
	calm := newPlace(t, fixture(t, "tiny"))
	began := time.Now()
	want := calm.ingest(file)
	took := time.Since(began)
	r := rand.New(rand.NewPCG(11, 7))
	for round := range 3 {
		p := newPlace(t, calm.model)
		durable := 0  // tokens that killed runs reported as stored
		for range 6 { // more kills than a job has attempts
			c := p.command("ingest", "--json", "--tokens", file)
			var errs bytes.Buffer
			c.Stderr = &errs
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(r.Float64() * 0.5 * float64(took)))
			c.Process.Kill()
			c.Wait()
			durable = p.repeatsAtMostOneChunk(errs.String(), durable)
		}
		o := p.run("ingest", "--json", "--tokens", file)
		p.repeatsAtMostOneChunk(o.err, durable)
		if o.code != 0 {
			t.Fatalf("round %d: exit code %d: %s", round, o.code, o.err)
		}
		if got := decode[receipt](t, o.out); got.Handle != want.Handle {
			t.Errorf("round %d: handle %s, want %s", round, got.Handle, want.Handle)
		}
		p.must("snapshot", "verify", want.Handle)
	}
}

// repeatsAtMostOneChunk checks that a run began where the runs before it had stored, and returns what is stored
// now: a run says "restored N of M" before its first "read N of M".
func (p place) repeatsAtMostOneChunk(text string, durable int) int {
	p.t.Helper()
	from, most := 0, durable
	for line := range strings.Lines(text) {
		var n, total int
		if _, err := fmt.Sscanf(line, "restored %d of %d tokens", &n, &total); err == nil {
			from = n
		}
		if _, err := fmt.Sscanf(line, "read %d of %d tokens", &n, &total); err != nil {
			continue
		}
		if most == durable && durable-from > grid {
			p.t.Errorf("%d tokens were stored, the next run began at %d", durable, from)
		}
		most = max(most, n)
	}
	return most
}

// reported is the largest number of tokens that a run's progress lines name.
func reported(text string) int {
	most := 0
	for line := range strings.Lines(text) {
		var n, total int
		if _, err := fmt.Sscanf(line, "read %d of %d tokens", &n, &total); err == nil {
			most = max(most, n)
		}
	}
	return most
}

// An interrupt finishes the chunk at hand, says what to do, and loses nothing.
func TestInterrupt(t *testing.T) {
	file := document(t, 6*grid, 5)
	p := newPlace(t, fixture(t, "tiny"))
	c := p.command("ingest", "--tokens", file)
	errs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	buf := make([]byte, 256)
	for !strings.Contains(said.String(), "read ") {
		n, err := errs.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
	}
	c.Process.Signal(os.Interrupt)
	if _, err := said.ReadFrom(errs); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	if code := c.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d: %s", code, said.String())
	}
	if !strings.Contains(said.String(), "the same command goes on from there") {
		t.Errorf("it says %s", said.String())
	}
	got := p.ingest(file)
	if got.Tokens.Restored < reported(said.String()) || got.Tokens.Restored == 0 {
		t.Errorf("%d tokens restored after %s", got.Tokens.Restored, said.String())
	}
}

// Two commands on one data folder share its queue; both finish.
func TestTwoCommandsShareTheFolder(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	files := []string{document(t, 2*grid, 8), document(t, 2*grid+7, 9)}
	handles := make([]string, 2)
	done := make(chan int)
	for i, file := range files {
		go func() {
			o := p.run("ingest", "--tokens", file)
			if o.code != 0 {
				t.Errorf("command %d exits with %d: %s", i, o.code, o.err)
			}
			handles[i] = strings.TrimSpace(o.out)
			done <- i
		}()
	}
	<-done
	<-done
	for i, h := range handles {
		if o := p.run("snapshot", "verify", h); o.code != 0 {
			t.Errorf("handle %d: %s", i, o.err)
		}
	}
	if handles[0] == handles[1] {
		t.Errorf("two documents, one handle %s", handles[0])
	}
}

// The demo reads its document, answers every question in new processes, and computes nothing when it is run again.
func TestDemo(t *testing.T) {
	p := newPlace(t, "nano")
	first := p.run("demo")
	if first.code != 0 || !strings.Contains(first.out, "12 of 12 right") || !strings.Contains(first.out, "Handle: lh1-") {
		t.Fatalf("exit code %d: %s%s", first.code, first.out, first.err)
	}
	again := p.run("demo")
	if again.code != 0 || !strings.Contains(again.out, "6069 tokens were read before, 0 now") {
		t.Errorf("exit code %d: %s%s", again.code, again.out, again.err)
	}
}
