package e2e_test

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// daemon is a lector worker in the background.
type daemon struct {
	*exec.Cmd
	t *testing.T

	mu   sync.Mutex
	said strings.Builder
	more chan struct{} // closed and replaced with every line
	end  chan struct{} // closed when the process has ended
}

// worker starts a worker on the folder and waits until it takes jobs.
func (p place) worker(args ...string) *daemon {
	p.t.Helper()
	d := &daemon{Cmd: p.command(append([]string{"worker"}, args...)...), t: p.t, more: make(chan struct{}), end: make(chan struct{})}
	errs, err := d.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		p.t.Fatal(err)
	}
	go d.listen(errs)
	p.t.Cleanup(func() {
		_ = d.Process.Kill() // fails where it has ended
		<-d.end
	})
	d.hear(" takes ")
	return d
}

func (d *daemon) listen(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		d.mu.Lock()
		d.said.WriteString(lines.Text() + "\n")
		close(d.more)
		d.more = make(chan struct{})
		d.mu.Unlock()
	}
	_ = d.Wait() // the exit code is in ProcessState
	close(d.end)
}

func (d *daemon) words() (string, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.said.String(), d.more
}

// hear waits until the worker has said something.
func (d *daemon) hear(word string) {
	d.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		said, more := d.words()
		if strings.Contains(said, word) {
			return
		}
		select {
		case <-more:
		case <-d.end:
			if said, _ := d.words(); !strings.Contains(said, word) {
				d.t.Fatalf("the worker ended without saying %q:\n%s", word, said)
			}
		case <-late:
			d.t.Fatalf("the worker does not say %q:\n%s", word, said)
		}
	}
}

// exit waits for the worker's end and returns its exit code, -1 after a signal.
func (d *daemon) exit() int {
	d.t.Helper()
	select {
	case <-d.end:
	case <-time.After(2 * time.Minute):
		said, _ := d.words()
		d.t.Fatalf("the worker does not end:\n%s", said)
	}
	return d.ProcessState.ExitCode()
}

// An idle worker ends at once when it is told to.
func TestIdleWorkerDrains(t *testing.T) {
	w := newPlace(t, "nano").worker("--kinds", "resume")
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := w.exit(); code != 0 {
		said, _ := w.words()
		t.Errorf("exit code %d:\n%s", code, said)
	}
	w.hear("drained")
}

// A worker on a data folder whose queue another process keeps outlives that process: it keeps the queue itself then, and
// does what is asked for. What was at hand is not lost.
func TestWorkerOutlivesTheOwner(t *testing.T) {
	p := newPlace(t, fixture(t, "tiny"))
	owner := p.worker()
	other := p.worker()
	var ids []int
	for i := range 1500 {
		ids = append(ids, (i*7+i/13)%300)
	}
	job := p.must("submit", "--tokens", writeIDs(t, ids))
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	other.hear("this worker keeps the queue from now on")
	if said := p.must("jobs", "wait", "--timeout", "100s", job); !strings.Contains(said, "done: the state of 1500 tokens") {
		t.Errorf("the job ends with %q", said)
	}
	third := p.worker() // joins the new owner
	if err := other.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := other.exit(); code != 0 {
		said, _ := other.words()
		t.Errorf("exit code %d:\n%s", code, said)
	}
	third.hear("this worker keeps the queue from now on")
	p.must("submit", "--wait", "--tokens", writeIDs(t, ids[3:]))
}
