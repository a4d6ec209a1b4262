package jetstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"lector/queue"
	"lector/queue/jetstream"
)

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	l := must(jetstream.Lock(dir))(t)
	var locked *jetstream.LockedError
	if _, err := jetstream.Lock(dir); !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.Dir != dir {
		t.Fatalf("second lock: %v", err)
	}
	if _, err := jetstream.Embedded(t.Context(), config(dir)); !errors.As(err, &locked) {
		t.Fatalf("server on a locked folder: %v", err)
	}
	cfg := config(t.TempDir())
	cfg.Lock = l
	if _, err := jetstream.Embedded(t.Context(), cfg); err == nil {
		t.Fatal("server with the lock of another folder")
	}
	cfg.Dir = dir
	s, _ := serve(t, cfg)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Lock(dir); !errors.As(err, &locked) {
		t.Fatalf("the server gave up a lock that is the caller's: %v", err)
	}
	for range 2 {
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := jetstream.Embedded(t.Context(), cfg); err == nil {
		t.Fatal("server with a lock that was released")
	}
	if err := must(jetstream.Lock(dir))(t).Release(); err != nil {
		t.Fatal(err)
	}
}

func TestLockOfKilled(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(must(os.Executable())(t), holdLock, dir)
	out := must(child.StdoutPipe())(t)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("child says %q: %v", line, err)
	}
	var locked *jetstream.LockedError
	if _, err := jetstream.Lock(dir); !errors.As(err, &locked) || locked.PID != child.Process.Pid {
		t.Fatalf("lock that process %d holds: %v", child.Process.Pid, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // says that it was killed
	if err := must(jetstream.Lock(dir))(t).Release(); err != nil {
		t.Fatal(err)
	}
}

func TestConnect(t *testing.T) {
	cfg := config(t.TempDir())
	if _, err := jetstream.Connect(t.Context(), cfg); !errors.Is(err, jetstream.ErrNoServer) {
		t.Fatalf("connect to a folder that nobody serves: %v", err)
	}
	s, q := serve(t, cfg)
	if n := s.Clients(); n != 0 {
		t.Fatalf("%d clients before any", n)
	}
	other := must(jetstream.Connect(t.Context(), cfg))(t)
	if n := s.Clients(); n != 1 {
		t.Fatalf("%d clients after the first", n)
	}
	must(other.Submit(t.Context(), job("a")))(t)
	if err := next(t, q, "a", 1).Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	info := must(os.Stat(filepath.Join(cfg.Dir, "nats.json")))(t)
	if info.Mode().Perm() != 0o600 {
		t.Fatalf("the token can be read with mode %v", info.Mode())
	}
	nc, _ := raw(t, cfg.Dir)
	if _, err := nats.Connect(nc.ConnectedUrl(), nats.Token("guess")); !errors.Is(err, nats.ErrAuthorization) {
		t.Fatalf("connect with a wrong token: %v", err)
	}
	nc.Close()

	ended := make(chan error, 2)
	go func() { _, err := other.Next(t.Context()); ended <- err }()
	go func() { ended <- other.Follow(t.Context(), "a", func(queue.Event) bool { return true }) }()
	time.Sleep(50 * time.Millisecond) // let them wait, which the outcome does not depend on
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, queue.ErrClosed) {
			t.Fatalf("waiting when the server closed: %v", err)
		}
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Connect(t.Context(), cfg); !errors.Is(err, jetstream.ErrNoServer) {
		t.Fatalf("connect after the server closed: %v", err)
	}
	if _, err := s.Queue(t.Context()); err == nil {
		t.Fatal("opened a queue of a closed server")
	}
}

// A listing that its owner does not live to tell to the end says so.
func TestListOfClosed(t *testing.T) {
	cfg := config(t.TempDir())
	s, q := serve(t, cfg)
	const jobs = 300 // more than wait on their way to who lists them
	for i := range jobs {
		must(q.Submit(t.Context(), job(fmt.Sprint("job", i))))(t)
	}
	other := must(jetstream.Connect(t.Context(), cfg))(t)
	defer other.Close()
	told := 0
	err := other.List(t.Context(), func(queue.Status) bool {
		if told++; told == 1 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	if all := err == nil && told == jobs; !all && !errors.Is(err, queue.ErrClosed) { // all were on their way already
		t.Fatalf("listing when the server closed: %v after %d of %d jobs", err, told, jobs)
	}
}

func TestClientsLeave(t *testing.T) {
	cfg := config(t.TempDir())
	s, _ := serve(t, cfg)
	must(jetstream.Connect(t.Context(), cfg))(t).Close()
	own := must(s.Queue(t.Context()))(t)
	own.Close()
	for s.Clients() > 0 {
		if t.Context().Err() != nil {
			t.Fatal("a client that left still counts")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestShare(t *testing.T) {
	cfg := config(t.TempDir())
	q1, owner, err := jetstream.Share(t.Context(), cfg)
	if err != nil || owner == nil {
		t.Fatalf("the first is not the owner: %v", err)
	}
	q2, second, err := jetstream.Share(t.Context(), cfg)
	if err != nil || second != nil {
		t.Fatalf("the second is not a client: %v", err)
	}
	must(q2.Submit(t.Context(), job("a")))(t)
	held := next(t, q1, "a", 1)
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	q2.Close()
	q3, owner, err := jetstream.Share(t.Context(), cfg)
	if err != nil || owner == nil {
		t.Fatalf("the third is not the owner: %v", err)
	}
	defer owner.Close()
	if err := held.Done(t.Context()); !errors.Is(err, queue.ErrClosed) {
		t.Fatalf("settle a delivery of the owner before: %v", err)
	}
	next(t, q3, "a", 1) // the attempt of the owner before is void

	// Somebody who holds the lock and never serves.
	busy := config(t.TempDir())
	lock := must(jetstream.Lock(busy.Dir))(t)
	defer lock.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err = jetstream.Share(ctx, busy)
	var locked *jetstream.LockedError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &locked) {
		t.Fatalf("share a folder whose owner does not serve: %v", err)
	}
}

// Commands that come and go at once, as xargs starts them, all do what they came for, whichever of them is the owner.
func TestVisitors(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Visit = true
	var came sync.WaitGroup
	for i := range 8 {
		came.Go(func() {
			for k := range 3 {
				if err := visit(t.Context(), cfg, fmt.Sprintf("%d-%d", i, k)); err != nil {
					t.Errorf("visitor %d: %v", i, err)
				}
			}
		})
	}
	came.Wait()
	cfg.Visit = false
	_, q := serve(t, cfg)
	n := 0
	err := q.List(t.Context(), func(queue.Status) bool { n++; return true })
	if err != nil || n != 24 {
		t.Errorf("%d jobs of 24 are in the queue: %v", n, err)
	}
}

// visit submits a job as a command does that then ends.
func visit(ctx context.Context, cfg jetstream.Config, id string) (err error) {
	q, owner, err := jetstream.Share(ctx, cfg)
	if err != nil {
		return err
	}
	if owner != nil {
		defer func() { err = errors.Join(err, q.Close(), owner.Retire(ctx), owner.Close()) }()
	} else {
		defer q.Close()
	}
	if passing := owner == nil; q.Passing() != passing {
		return fmt.Errorf("the owner, a visitor, is passing: %v, want %v", q.Passing(), passing)
	}
	_, err = q.Submit(ctx, job(id))
	return err
}

// A copy of the store while it is in use is what a kill or a power loss leaves: every write that was confirmed is in it.
func TestCrashCopy(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.AckWait = time.Hour // only being void brings the held job back
	_, q := serve(t, cfg)
	must(q.Submit(t.Context(), job("held")))(t)
	next(t, q, "held", 1)
	must(q.Submit(t.Context(), job("waiting")))(t)
	must(q.Acquire(t.Context(), "node", time.Hour))(t)
	must(q.PublishHandle(t.Context(), "held", []byte("body")))(t)
	if err := q.Publish(t.Context(), queue.Event{Version: 1, Job: "held", Type: queue.EventProgress, Tokens: 9}); err != nil {
		t.Fatal(err)
	}

	crashed := cfg
	crashed.Dir = t.TempDir()
	if err := os.CopyFS(crashed.Dir, os.DirFS(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	_, q = serve(t, crashed)
	d := next(t, q, "held", 1) // the attempt that died with its process does not count
	next(t, q, "waiting", 1)
	must(q.Acquire(t.Context(), "node", time.Hour))(t)
	if body := must(q.PublishHandle(t.Context(), "held", []byte("other")))(t); string(body) != "body" {
		t.Fatalf("handle after the crash is %q", body)
	}
	if err := q.Follow(t.Context(), "held", func(e queue.Event) bool { return e.Tokens != 9 }); err != nil {
		t.Fatal(err)
	}
	if err := d.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestServerFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := jetstream.Embedded(t.Context(), config(dir)); err == nil {
		s.Close()
		t.Fatal("started on a store that is a file")
	} else {
		t.Log(err)
	}
	if err := must(jetstream.Lock(dir))(t).Release(); err != nil {
		t.Fatalf("the lock outlived a failed start: %v", err)
	}
	if _, err := jetstream.Embedded(t.Context(), jetstream.Config{}); err == nil {
		t.Fatal("started without a folder")
	}
}

// A resume whose process died with the owner has nobody left to hear it: it is cancelled, never generated unheard.
func TestNewOwnerCancelsResumes(t *testing.T) {
	cfg := config(t.TempDir())
	s, q := serve(t, cfg)
	j := job("asked")
	j.Kind, j.Ingest, j.Resume = queue.Resume, nil, &queue.ResumeOrder{Handle: "h", MaxTokens: 1}
	must(q.Submit(t.Context(), j))(t)
	must(q.Submit(t.Context(), job("document")))(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, q = serve(t, cfg)
	if st := must(q.Status(t.Context(), "asked"))(t); st.State != queue.Cancelled {
		t.Errorf("the resume is %s", st.State)
	}
	if st := must(q.Status(t.Context(), "document"))(t); st.State != queue.Queued || st.Attempts != 0 {
		t.Errorf("the ingest is %s after %d attempts", st.State, st.Attempts)
	}
}

// An owner that serves others keeps the resumes that an earlier one left, and the attempts that ended with it.
func TestServiceKeepsWhatWasLeft(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Service = []queue.Kind{queue.Resume}
	s, q := serve(t, cfg)
	other := must(jetstream.Connect(t.Context(), cfg))(t)
	if !other.Served(queue.Resume, cfg.Model) || other.Served(queue.Ingest, cfg.Model) || other.Served(queue.Resume, "another") || q.Served(queue.Resume, cfg.Model) {
		t.Error("who takes jobs for others is told wrong")
	}
	other.Close()
	asked := job("asked")
	asked.Kind, asked.Ingest, asked.Resume = queue.Resume, nil, &queue.ResumeOrder{Handle: "h", MaxTokens: 1}
	must(q.Submit(t.Context(), asked))(t)
	next(t, q, "asked", 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	looks := cfg
	looks.Service, looks.Visit = nil, true
	s, _ = serve(t, looks)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, q = serve(t, cfg)
	if st := must(q.Status(t.Context(), "asked"))(t); st.State != queue.Queued || st.Attempts != 1 {
		t.Fatalf("the new owner finds the resume %s after %d attempts", st.State, st.Attempts)
	}
	next(t, q, "asked", 2)
}
