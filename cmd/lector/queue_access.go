package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"lector/queue/jetstream"
)

// natsFlags say which NATS server carries the queue. Without an address it is a server of this machine's data folder.
type natsFlags struct {
	url     string
	context string // name of a context of the nats command, or its file
	access  jetstream.Access
}

func (n *natsFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&n.url, "nats", os.Getenv("LECTOR_NATS"), "`address` of NATS servers that carry the queue of a fleet, such as nats://host:4222 (default: $LECTOR_NATS, else a queue in the data folder)")
	f.StringVar(&n.context, "nats-context", os.Getenv("LECTOR_NATS_CONTEXT"), "`name` or file of a context of the nats command, with address and credentials (default: $LECTOR_NATS_CONTEXT)")
	f.StringVar(&n.access.Creds, "nats-creds", "", "`file` with a user's NATS credentials (default: $NATS_CREDS); user, password and token: in the address, or $NATS_USER, $NATS_PASSWORD, $NATS_TOKEN")
	f.StringVar(&n.access.NKey, "nats-nkey", "", "`file` with a user's nkey seed (default: $NATS_NKEY)")
	f.StringVar(&n.access.CA, "nats-ca", "", "`file` with the certificates that NATS servers are checked against (default: $NATS_CA, else the system's)")
	f.StringVar(&n.access.Cert, "nats-cert", "", "`file` with this client's certificate for NATS (default: $NATS_CERT)")
	f.StringVar(&n.access.Key, "nats-key", "", "`file` with the key of that certificate (default: $NATS_KEY)")
}

// remote says that the queue is a fleet's, not of the data folder.
func (n *natsFlags) remote() bool { return n.url != "" || n.context != "" }

// resolve is the address and the access: of the flags, then of the context, then of the environment.
func (n *natsFlags) resolve() (string, jetstream.Access, error) {
	url, access := n.url, n.access
	if n.context != "" {
		c, err := readNATSContext(n.context)
		if err != nil {
			return "", access, badInput(err)
		}
		if url == "" {
			url = c.URL
		}
		access = completed(access, c.access())
	}
	if url == "" {
		return "", access, badInput(fmt.Errorf("NATS context %s has no address: give one with --nats", n.context))
	}
	return url, completed(access, jetstream.Access{
		Creds: os.Getenv("NATS_CREDS"), NKey: os.Getenv("NATS_NKEY"), Token: os.Getenv("NATS_TOKEN"),
		User: os.Getenv("NATS_USER"), Password: os.Getenv("NATS_PASSWORD"),
		CA: os.Getenv("NATS_CA"), Cert: os.Getenv("NATS_CERT"), Key: os.Getenv("NATS_KEY"),
	}), nil
}

// completed takes from the second access what the first leaves open: who it is as a whole, files one by one.
func completed(first, second jetstream.Access) jetstream.Access {
	out := first
	if first.Creds == "" && first.NKey == "" && first.User == "" && first.Token == "" {
		out.Creds, out.NKey, out.User, out.Password, out.Token = second.Creds, second.NKey, second.User, second.Password, second.Token
	}
	if first.CA == "" {
		out.CA = second.CA
	}
	if first.Cert == "" && first.Key == "" {
		out.Cert, out.Key = second.Cert, second.Key
	}
	out.TLSFirst = first.TLSFirst || second.TLSFirst
	return out
}

// natsContext is the part of the nats command's context files that lector reads.
type natsContext struct {
	URL      string `json:"url"`
	Token    string `json:"token"`
	User     string `json:"user"`
	Password string `json:"password"`
	Creds    string `json:"creds"`
	NKey     string `json:"nkey"`
	Cert     string `json:"cert"`
	Key      string `json:"key"`
	CA       string `json:"ca"`
	TLSFirst bool   `json:"tls_first"`
}

func (c natsContext) access() jetstream.Access {
	return jetstream.Access{
		Creds: c.Creds, NKey: c.NKey, User: c.User, Password: c.Password, Token: c.Token,
		CA: c.CA, Cert: c.Cert, Key: c.Key, TLSFirst: c.TLSFirst,
	}
}

// readNATSContext reads a context where the nats command keeps it, or a file that is named by its path.
func readNATSContext(name string) (natsContext, error) {
	var c natsContext
	path := name
	if !strings.ContainsRune(name, filepath.Separator) {
		config := os.Getenv("XDG_CONFIG_HOME")
		if config == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return c, fmt.Errorf("find NATS context %s: %w: give the path of its file", name, err)
			}
			config = filepath.Join(home, ".config")
		}
		path = filepath.Join(config, "nats", "context", name+".json")
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("NATS context %s: there is no %s: make one with 'nats context add'", name, path)
	}
	if err != nil {
		return c, fmt.Errorf("read NATS context %s: %w", name, err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("decode NATS context %s: %w", path, err)
	}
	for _, p := range []*string{&c.Creds, &c.NKey, &c.Cert, &c.Key, &c.CA} {
		if rest, ok := strings.CutPrefix(*p, "~/"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				return c, fmt.Errorf("read NATS context %s: %w", path, err)
			}
			*p = filepath.Join(home, rest)
		}
	}
	return c, nil
}

// openQueue opens the queue that the flags name: a fleet's at its NATS server, or that of the data folder, which this
// process serves when it is the first. server is nil unless it does. cfg says what is not about where the queue is.
func (a *app) openQueue(ctx context.Context, cfg jetstream.Config) (*jetstream.Queue, *jetstream.Server, error) {
	if a.nats.remote() {
		var err error
		if cfg.URL, cfg.Access, err = a.nats.resolve(); err != nil {
			return nil, nil, err
		}
		if err := cfg.Access.Validate(); err != nil {
			return nil, nil, badInput(err)
		}
		q, err := jetstream.Open(ctx, cfg)
		if err != nil {
			return nil, nil, fmt.Errorf("open queue: %w", err)
		}
		return q, nil, nil
	}
	data, err := a.dataFolder()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, nil, fmt.Errorf("create data folder: %w", err)
	}
	cfg.Dir = filepath.Join(data, queueFolder)
	q, server, err := jetstream.Share(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("open queue: %w", err)
	}
	return q, server, nil
}

// queueFolder is where a data folder keeps its queue.
const queueFolder = "queue"

// joinQueue opens a queue that another process keeps: a fleet's, or that of the data folder; jetstream.ErrNoServer where
// nobody serves the folder.
func (a *app) joinQueue(ctx context.Context) (*jetstream.Queue, error) {
	if a.nats.remote() {
		q, _, err := a.openQueue(ctx, jetstream.Config{})
		return q, err
	}
	data, err := a.dataFolder()
	if err != nil {
		return nil, err
	}
	q, err := jetstream.Connect(ctx, jetstream.Config{Dir: filepath.Join(data, queueFolder)})
	if err != nil {
		return nil, fmt.Errorf("open queue: %w", err)
	}
	return q, nil
}
