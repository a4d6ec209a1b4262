package jetstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lector/queue"
)

// addressFile is where the owner of a data folder says how to reach its server. Only its user can read it.
const addressFile = "nats.json"

// The names of connections that Clients does not count: those that Server.Queue makes, and those of processes that take
// jobs for others, which take the folder over when its owner ends.
const (
	ownName    = "lector owner"
	workerName = "lector worker"
)

// startTimeout bounds the start of the server, recovery of a large store included.
const startTimeout = 30 * time.Second

// Server is a NATS server in this process, over the store of a data folder.
type Server struct {
	cfg   Config
	srv   *server.Server
	token string
	lock  *FolderLock
	own   bool // the lock is ours to release
	logs  *serverLog

	mu      sync.Mutex
	queues  map[*Queue]struct{}
	changes []Change // that the start made; the next queue tells them
	closed  bool
}

// address is the content of addressFile.
type address struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	PID   int    `json:"pid"`

	Model   string       `json:"model,omitempty"`   // whose jobs the owner takes for others
	Service []queue.Kind `json:"service,omitempty"` // their kinds
	Visit   bool         `json:"visit,omitempty"`   // the owner only looks or submits, and ends soon
}

// Embedded starts the server of cfg.Dir and makes this process its owner; a *LockedError when there is another. Every write
// is synced before it is confirmed. It listens on a free port of the loopback interface, for commands of the same
// user that find the address and the token in the folder (Connect). Leases and deliveries of an earlier owner are void.
func Embedded(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Dir == "" {
		return nil, errors.New("start queue server: no data folder is given")
	}
	s := &Server{
		cfg: cfg.withDefaults(), lock: cfg.Lock, own: cfg.Lock == nil,
		token: rand.Text(), queues: map[*Queue]struct{}{},
	}
	var err error
	if s.own {
		s.lock, err = Lock(cfg.Dir)
	} else if !s.lock.holds(cfg.Dir) {
		err = fmt.Errorf("start queue server: the lock given is not held on %s", cfg.Dir)
	}
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	s.logs = &serverLog{log: s.cfg.Log}
	srv, err := server.NewServer(&server.Options{
		ServerName: "lector", Host: "127.0.0.1", Port: server.RANDOM_PORT, Authorization: s.token,
		JetStream: true, StoreDir: s.cfg.Dir, SyncAlways: true, // makes the folder "jetstream" in it
		NoSigs: true, DisableJetStreamBanner: true,
	})
	if err != nil {
		return fmt.Errorf("start queue server on %s: %w", s.cfg.Dir, err)
	}
	s.srv = srv
	srv.SetLoggerV2(s.logs, false, false, false)
	srv.Start()
	if err := s.ready(ctx); err != nil {
		return fmt.Errorf("start queue server on %s: %w", s.cfg.Dir, err)
	}
	if err := s.voidEarlierOwner(ctx); err != nil {
		return fmt.Errorf("take over the queue of %s: %w", s.cfg.Dir, err)
	}
	// Last: until now nobody else can connect, so nothing that was voided is in use.
	return s.writeAddress()
}

func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !s.srv.ReadyForConnections(100 * time.Millisecond) {
		if text := s.logs.fatal(); text != "" {
			return errors.New(text)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("not ready: %w", ctx.Err())
		}
	}
	if text := s.logs.fatal(); text != "" {
		return errors.New(text)
	}
	return nil
}

// voidEarlierOwner drops the consumers, with them every delivery and delay, and the leases. Those who held them are
// gone: the store had one process, and their connections went to it.
func (s *Server) voidEarlierOwner(ctx context.Context) error {
	q, err := s.Queue(ctx)
	if err != nil {
		return err
	}
	defer q.Close()
	s.mu.Lock()
	s.changes = q.Changes()
	s.mu.Unlock()
	call, cancel := q.call(ctx)
	defer cancel()
	jobs, err := q.js.Stream(call, jobsStream)
	if err != nil {
		return q.fail(ctx, err, "open stream %s", jobsStream)
	}
	names := jobs.ConsumerNames(call)
	for name := range names.Name() {
		if err := jobs.DeleteConsumer(call, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return q.fail(ctx, err, "drop deliveries of %s", name)
		}
	}
	if err := names.Err(); err != nil {
		return q.fail(ctx, err, "list consumers of %s", jobsStream)
	}
	leases, err := q.js.Stream(call, "KV_"+leasesBucket)
	if err == nil {
		err = leases.Purge(call)
	}
	if err != nil {
		return q.fail(ctx, err, "drop leases")
	}
	return q.voidAttempts(ctx, jobs)
}

// voidAttempts puts every job that is still in the queue back to before the attempt that died with the earlier owner:
// killing a process is not the job's fault and does not count. Resumes are cancelled: their tokens went to a process
// that ended with the owner, so nobody is left to hear them. An owner that serves others does neither, and one that only
// looks leaves all of it to the next.
func (q *Queue) voidAttempts(ctx context.Context, jobs jetstream.Stream) error {
	for next := uint64(1); ; {
		call, cancel := q.call(ctx)
		msg, err := jobs.GetMsg(call, next, jetstream.WithGetMsgSubject(jobsSubjects))
		cancel()
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return q.fail(ctx, err, "list waiting jobs")
		}
		next = msg.Sequence + 1
		job, err := queue.DecodeJob(msg.Data)
		if err != nil {
			continue // Next rejects it by name
		}
		_, err = q.change(ctx, job.ID, func(r *record) error {
			switch {
			case r.State.Final() || q.cfg.Visit:
				return errKeep
			case r.State == queue.Running && len(q.cfg.Service) > 0:
				r.State, r.Claim = queue.Queued, ""
			case len(q.cfg.Service) > 0:
				return errKeep
			case job.Kind == queue.Resume:
				r.State, r.Claim = queue.Cancelled, ""
				r.Cancel = &queue.Cancellation{At: time.Now().UTC(), Reason: "the process that asked for the text ended"}
			case r.State == queue.Running:
				r.State, r.Claim, r.Attempts = queue.Queued, "", max(r.Attempts-1, 0)
			default:
				return errKeep
			}
			return nil
		})
		if err != nil && !errors.Is(err, queue.ErrUnknown) {
			return fmt.Errorf("void earlier attempt: %w", err)
		}
	}
}

// Queue opens a queue on a connection inside the process, with the settings of the server.
func (s *Server) Queue(ctx context.Context) (*Queue, error) {
	return s.QueueFor(ctx, s.cfg.Model)
}

// QueueFor is Queue for the jobs of another model.
func (s *Server) QueueFor(ctx context.Context, model string) (*Queue, error) {
	cfg := s.cfg
	cfg.Model, cfg.Create = model, true
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("open queue of %s: the server is closed", s.cfg.Dir)
	}
	nc, err := dial(cfg, "", nats.Name(ownName), nats.InProcessServer(s.srv), nats.Token(s.token), nats.NoReconnect())
	if err != nil {
		return nil, fmt.Errorf("connect to the queue server in this process: %w", err)
	}
	q, err := open(ctx, cfg, nc, true)
	if err != nil {
		return nil, err
	}
	q.embedded = true
	q.changes, s.changes = append(s.changes, q.changes...), nil
	s.queues[q] = struct{}{}
	q.onClose = append(q.onClose, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.queues, q)
	})
	return q, nil
}

// Clients returns how many connections there are of other commands on this folder that cannot go on without this server. The count
// of a connection that just closed may be late.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0
	}
	conns, err := s.srv.Connz(&server.ConnzOptions{State: server.ConnOpen, Limit: 1 << 16})
	if err != nil { // of the options alone
		return s.srv.NumClients()
	}
	n := 0
	for _, c := range conns.Conns {
		if c.Name != ownName && c.Name != workerName {
			n++
		}
	}
	return n
}

// Retire is for an owner that is about to close: nobody finds the server any more, and those that had found it are waited
// for until ctx ends.
func (s *Server) Retire(ctx context.Context) error {
	if err := s.removeAddress(); err != nil {
		return err
	}
	for s.Clients() > 0 && ctx.Err() == nil {
		time.Sleep(clientsPoll)
	}
	return nil
}

// clientsPoll is how often Retire looks whether the clients have gone.
const clientsPoll = 2 * time.Millisecond

// Close closes the queues, stops the server and gives the folder up. Closing twice is harmless.
func (s *Server) Close() error {
	s.mu.Lock()
	queues := s.queues
	s.queues = nil
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	for q := range queues {
		_ = q.Close() // never fails
	}
	// First: who reads the address from now on shall not connect to what is about to go.
	err := s.removeAddress()
	if s.srv != nil {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
	}
	if s.own {
		err = errors.Join(err, s.lock.Release())
	}
	if err != nil {
		return fmt.Errorf("close queue server of %s: %w", s.cfg.Dir, err)
	}
	return nil
}

// removeAddress leaves nothing to find the server by.
func (s *Server) removeAddress() error {
	err := os.Remove(filepath.Join(s.cfg.Dir, addressFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove address of queue server: %w", err)
	}
	return nil
}

// writeAddress replaces the address file whole, so that a reader sees no half of it.
func (s *Server) writeAddress() error {
	b, err := json.Marshal(address{URL: s.srv.ClientURL(), Token: s.token, PID: os.Getpid(), Model: s.cfg.Model, Service: s.cfg.Service, Visit: s.cfg.Visit})
	if err != nil {
		return fmt.Errorf("encode address of queue server: %w", err)
	}
	f, err := os.CreateTemp(s.cfg.Dir, addressFile+".*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write address of queue server: %w", err)
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.cfg.Dir, addressFile))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write address of queue server: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// ErrNoServer says that nobody serves the queue of a data folder now: its owner is starting, stopping, or gone.
var ErrNoServer = errors.New("no queue server in this data folder")

// Connect opens the queue of cfg.Dir at the server of another process, or of this one; ErrNoServer. The queue
// closes with the server: its owner's successor has another address.
func Connect(ctx context.Context, cfg Config) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	a, err := readAddress(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("connect to queue of %s: %w", cfg.Dir, err)
	}
	options := []nats.Option{nats.Token(a.Token), nats.NoReconnect()}
	if len(cfg.Service) > 0 {
		options = append(options, nats.Name(workerName))
	}
	nc, err := dial(cfg, a.URL, options...)
	if err != nil { // a file left by a killed owner; whoever has its port now knows no such token
		return nil, fmt.Errorf("connect to queue of %s: %w (%w)", cfg.Dir, ErrNoServer, err)
	}
	q, err := open(ctx, cfg, nc, true)
	if err != nil {
		if now, gone := readAddress(cfg.Dir); ctx.Err() == nil && (gone != nil || now.Token != a.Token || errors.Is(err, queue.ErrClosed)) {
			err = fmt.Errorf("connect to queue of %s: %w (%w)", cfg.Dir, ErrNoServer, err) // it ended while we came
		}
		return nil, err
	}
	q.owner = a
	return q, nil
}

// readAddress says how to reach the owner of a data folder; ErrNoServer.
func readAddress(dir string) (address, error) {
	var a address
	name := filepath.Join(dir, addressFile)
	b, err := os.ReadFile(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return a, ErrNoServer
	case err != nil:
		return a, fmt.Errorf("read address of queue server: %w", err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("decode %s: %w", name, err)
	}
	return a, nil
}

// Served says that the owner of the data folder, another process, takes jobs of this kind and model for others.
func (q *Queue) Served(kind queue.Kind, model string) bool {
	return q.owner.Model == model && slices.Contains(q.owner.Service, kind)
}

// Passing says that the owner of the data folder, another process, only looks or submits: it ends soon, and works on
// nothing.
func (q *Queue) Passing() bool { return q.owner.Visit }

// Share makes this process the owner of cfg.Dir, or connects to the owner there is; the server is nil then. It waits
// for an owner that is starting or stopping until the context ends.
func Share(ctx context.Context, cfg Config) (*Queue, *Server, error) {
	for {
		s, err := Embedded(ctx, cfg)
		if err == nil {
			q, err := s.Queue(ctx)
			if err != nil {
				return nil, nil, errors.Join(err, s.Close())
			}
			return q, s, nil
		}
		var locked *LockedError
		if !errors.As(err, &locked) {
			return nil, nil, err
		}
		q, err := Connect(ctx, cfg)
		if err == nil {
			return q, nil, nil
		}
		if !errors.Is(err, ErrNoServer) {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w: %w", locked, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// serverLog routes the server's words to Config.Log and keeps the one that ended it.
type serverLog struct {
	log func(Level, string)

	mu   sync.Mutex
	last string
}

func (l *serverLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *serverLog) say(level Level, format string, v []any) {
	l.log(level, "nats server: "+strings.TrimSpace(fmt.Sprintf(format, v...)))
}

func (l *serverLog) Noticef(format string, v ...any) { l.say(LevelInfo, format, v) }
func (l *serverLog) Warnf(format string, v ...any)   { l.say(LevelWarn, format, v) }
func (l *serverLog) Errorf(format string, v ...any)  { l.say(LevelError, format, v) }
func (l *serverLog) Debugf(format string, v ...any)  { l.say(LevelDebug, format, v) }
func (l *serverLog) Tracef(format string, v ...any)  { l.say(LevelDebug, format, v) }

// Fatalf does not end the process, as the server's own logger would: Embedded returns the words instead.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	l.last = fmt.Sprintf(format, v...)
	l.mu.Unlock()
	l.say(LevelError, format, v)
}
