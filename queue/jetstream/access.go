package jetstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Access is how a client proves who it is to a NATS server, and how it knows the server, in the forms that NATS users
// have: at most one of Creds, NKey, Token and User is set. User, password and token may stand in the URL as well.
type Access struct {
	Creds          string // file with a user's JWT and seed, as nsc writes it
	NKey           string // file with a user's nkey seed
	User, Password string
	Token          string

	CA        string // file with the certificates that servers are checked against; "": the system's
	Cert, Key string // files with this client's certificate and its key: both or none
	TLSFirst  bool   // the server wants TLS before it says anything
}

// Validate checks that the settings go together and that the files can be read.
func (a Access) Validate() error {
	var ways []string
	for _, w := range []struct {
		name string
		set  bool
	}{{"a credentials file", a.Creds != ""}, {"an nkey", a.NKey != ""}, {"a user", a.User != ""}, {"a token", a.Token != ""}} {
		if w.set {
			ways = append(ways, w.name)
		}
	}
	switch {
	case len(ways) > 1:
		return fmt.Errorf("NATS access is given by %s: give one", strings.Join(ways, " and "))
	case a.Password != "" && a.User == "":
		return errors.New("NATS access has a password and no user: give both")
	case (a.Cert == "") != (a.Key == ""):
		return errors.New("NATS access has one of certificate and key: give both")
	}
	for _, f := range []struct{ what, path string }{
		{"credentials file", a.Creds}, {"nkey seed", a.NKey}, {"CA certificates", a.CA}, {"certificate", a.Cert}, {"key", a.Key},
	} {
		if f.path == "" {
			continue
		}
		if _, err := os.ReadFile(f.path); err != nil {
			return fmt.Errorf("read %s of NATS access: %w", f.what, err)
		}
	}
	return nil
}

// options are what the client library is told. Files are read again at every reconnect, so that credentials may be
// renewed in place.
func (a Access) options() ([]nats.Option, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	var out []nats.Option
	switch {
	case a.Creds != "":
		out = append(out, nats.UserCredentials(a.Creds))
	case a.NKey != "":
		seed, err := nats.NkeyOptionFromSeed(a.NKey)
		if err != nil {
			return nil, fmt.Errorf("read nkey seed %s: %w", a.NKey, err)
		}
		out = append(out, seed)
	case a.User != "":
		out = append(out, nats.UserInfo(a.User, a.Password))
	case a.Token != "":
		out = append(out, nats.Token(a.Token))
	}
	if a.CA != "" {
		out = append(out, nats.RootCAs(a.CA))
	}
	if a.Cert != "" {
		out = append(out, nats.ClientCert(a.Cert, a.Key))
	}
	if a.TLSFirst {
		out = append(out, nats.TLSHandshakeFirst())
	}
	return out, nil
}

// Times of a connection over a network. A dead peer shows after two pings without an answer: well before AckWait, so that
// a worker that was cut off can be back in time.
const (
	pingInterval  = 5 * time.Second
	reconnectWait = 500 * time.Millisecond
)

// dialRemote connects to cfg.URL. The connection is made again for as long as the queue lives; nothing is kept to be sent
// later, since what was said before a partition may be wrong after it.
func dialRemote(cfg Config) (*nats.Conn, error) {
	access, err := cfg.Access.options()
	if err != nil {
		return nil, err
	}
	options := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2), nats.Timeout(cfg.Timeout),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				cfg.Log(LevelWarn, "cut off from NATS, connecting again: "+err.Error())
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { cfg.Log(LevelInfo, "connected to NATS again: "+nc.ConnectedUrlRedacted()) }),
	}
	nc, err := dial(cfg, cfg.URL, append(append(options, access...), cfg.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", redacted(cfg.URL), explained(err))
	}
	return nc, nil
}

// explained says in an operator's words why a connection was not made.
func explained(err error) error {
	var unknown x509.UnknownAuthorityError
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported):
		return fmt.Errorf("the server refuses this user: check credentials, user, token or nkey (%w)", err)
	case errors.As(err, &unknown), errors.As(err, &verify):
		return fmt.Errorf("the server's certificate is not trusted: give the CA that signed it (%w)", err)
	case errors.As(err, &record), errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrSecureConnRequired):
		return fmt.Errorf("one side speaks TLS and the other does not: check tls:// or nats:// in the address, and the CA (%w)", err)
	case errors.As(err, &dns):
		return fmt.Errorf("the host is not known: check the address (%w)", err)
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no server answers: check the address, and that the server runs (%w)", err)
	}
	return err
}

// redacted is a list of addresses without its passwords and tokens.
func redacted(list string) string {
	urls := strings.Split(list, ",")
	for i, u := range urls {
		parsed, err := url.Parse(strings.TrimSpace(u))
		if err != nil {
			urls[i] = "an address that is not a URL"
			continue
		}
		if _, has := parsed.User.Password(); parsed.User != nil && !has {
			parsed.User = url.User("xxxxx") // a token
		}
		urls[i] = parsed.Redacted()
	}
	return strings.Join(urls, ",")
}

// connected waits until the connection stands, until ctx or the queue ends, and at most AckWait.
func (q *Queue) connected(ctx context.Context) {
	if q.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, q.cfg.AckWait)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !q.nc.IsConnected() {
		select {
		case <-ctx.Done():
			return
		case <-q.life.Done():
			return
		case <-look.C:
		}
	}
}
