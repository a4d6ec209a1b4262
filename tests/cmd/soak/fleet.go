package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"lector/cache/s3/s3test"
)

const (
	nodes      = 3
	workers    = 3
	ackWait    = 5 * time.Second
	accessKey  = "test"
	secretKey  = "testsecret"
	bucketName = "soak"
)

// fleet is the processes and servers. Every worker sees NATS and S3 through wires of its own.
type fleet struct {
	dir, program, model string
	say                 func(string, ...any)

	ports, routes []int
	mu            sync.Mutex
	servers       [nodes]*server.Server
	s3            *exec.Cmd
	s3Address     string
	workers       [workers]*workerProcess
}

// start brings everything up.
func (f *fleet) start(ctx context.Context) error {
	free, err := s3test.FreePorts(2*nodes + 1)
	if err != nil {
		return err
	}
	f.ports, f.routes, f.s3Address = free[:nodes], free[nodes:2*nodes], fmt.Sprintf("127.0.0.1:%d", free[2*nodes])
	for i := range nodes {
		if err := f.startNode(i); err != nil {
			return err
		}
	}
	if err := f.startS3(ctx); err != nil {
		return err
	}
	if err := f.initQueue(ctx); err != nil {
		return err
	}
	for i := range workers {
		w, err := f.newWorker(i)
		if err != nil {
			return err
		}
		f.workers[i] = w
		if err := w.start(); err != nil {
			return err
		}
	}
	return nil
}

// startNode starts one node of the NATS cluster, or starts it again where it was.
func (f *fleet) startNode(i int) error {
	var routes []string
	for k, port := range f.routes {
		if k != i {
			routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
		}
	}
	o := &server.Options{
		ServerName: fmt.Sprintf("node-%d", i), Host: "127.0.0.1", Port: f.ports[i], NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: filepath.Join(f.dir, fmt.Sprintf("nats-%d", i)),
		Cluster: server.ClusterOpts{Name: "soak", Host: "127.0.0.1", Port: f.routes[i], NoAdvertise: true},
		Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
	}
	s, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("start NATS node %d: %w", i, err)
	}
	go s.Start()
	if i == 0 && f.servers[0] == nil || s.ReadyForConnections(time.Minute) {
		f.mu.Lock()
		f.servers[i] = s
		f.mu.Unlock()
		return nil
	}
	return fmt.Errorf("NATS node %d is not ready", i)
}

// restartNode stops a node for a while.
func (f *fleet) restartNode(i int, down time.Duration) error {
	f.mu.Lock()
	s := f.servers[i]
	f.mu.Unlock()
	s.Shutdown()
	s.WaitForShutdown()
	time.Sleep(down)
	return f.startNode(i)
}

func (f *fleet) startS3(ctx context.Context) error {
	program, err := s3test.Program()
	if err != nil {
		return err
	}
	folder := filepath.Join(f.dir, "s3")
	if err := os.MkdirAll(filepath.Join(folder, bucketName), 0o755); err != nil {
		return err
	}
	f.s3 = exec.Command(program, "--quiet", "--access", accessKey, "--secret", secretKey, "--port", f.s3Address, "--keep-alive", "posix", folder)
	if err := f.s3.Start(); err != nil {
		return fmt.Errorf("start the S3 server: %w", err)
	}
	for ctx.Err() == nil {
		if r, err := http.Get("http://" + f.s3Address); err == nil {
			return r.Body.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return context.Cause(ctx)
}

// nats are the addresses of the whole cluster, without wires.
func (f *fleet) nats() string {
	var all []string
	for _, port := range f.ports {
		all = append(all, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	return strings.Join(all, ",")
}

// initQueue makes the streams once the cluster has a leader.
func (f *fleet) initQueue(ctx context.Context) error {
	for {
		cmd := exec.CommandContext(ctx, f.program, "queue", "init", "--nats", f.nats(), "--replicas", "3")
		cmd.Env = environment(cmd, f.dir)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("make the queue: %w: %s", context.Cause(ctx), out)
		case <-time.After(time.Second):
		}
	}
}

// environment is this process's with what a worker needs.
func environment(cmd *exec.Cmd, home string) []string {
	return append(cmd.Environ(), "HOME="+home, "AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey)
}

// workerProcess is a worker behind two wires.
type workerProcess struct {
	fleet *fleet
	name  string
	queue *wire
	store *wire

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{}
	starts int
}

func (f *fleet) newWorker(i int) (*workerProcess, error) {
	w := &workerProcess{fleet: f, name: fmt.Sprintf("worker-%d", i)}
	var err error
	var targets []string
	for k := range nodes { // its own node first
		targets = append(targets, fmt.Sprintf("127.0.0.1:%d", f.ports[(i+k)%nodes]))
	}
	if w.queue, err = newWire(targets...); err != nil {
		return nil, err
	}
	w.store, err = newWire(f.s3Address)
	return w, err
}

// start runs the process; it ends by a kill alone, or is started again where it ends by itself.
func (w *workerProcess) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	data := filepath.Join(w.fleet.dir, w.name)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(data, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	store := "s3://" + bucketName + "?endpoint=" + url.QueryEscape("http://"+w.store.address())
	w.cmd = exec.Command(w.fleet.program, "worker", "--nats", "nats://"+w.queue.address(), "--store", store, "--model", w.fleet.model,
		"--data", data, "--ack-wait", ackWait.String(), "--device", "cpu", "--threads", "1", "--log-format", "json", "--log-level", "debug")
	w.cmd.Env, w.cmd.Stderr, w.cmd.Stdout = environment(w.cmd, data), log, log
	w.starts++
	if err := w.cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", w.name, err), log.Close())
	}
	ended, cmd := make(chan struct{}), w.cmd
	w.ended = ended
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		log.Close()
		close(ended)
	}()
	return nil
}

// signal sends one to the process.
func (w *workerProcess) signal(s syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.cmd.Process.Signal(s) // it may have ended
}

// kill ends it without a word.
func (w *workerProcess) kill() {
	w.signal(syscall.SIGKILL)
	<-w.over()
}

func (w *workerProcess) over() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// close ends everything.
func (f *fleet) close() error {
	for _, w := range f.workers {
		if w != nil {
			w.signal(syscall.SIGCONT)
			w.kill()
			w.queue.close()
			w.store.close()
		}
	}
	for _, s := range f.servers {
		if s != nil {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	if f.s3 != nil && f.s3.Process != nil {
		_ = f.s3.Process.Kill()
		_ = f.s3.Wait() // killed
	}
	return nil
}
