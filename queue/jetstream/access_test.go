package jetstream_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/queue/queuetest"
)

// guarded starts a server with the given settings.
func guarded(t *testing.T, edit func(*server.Options)) string {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}
	edit(o)
	s := must(server.NewServer(o))(t)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("server is not ready")
	}
	return s.ClientURL()
}

func write(t *testing.T, name string, body []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pass opens a queue and lets one job through; refused wants an error that says so.
func pass(t *testing.T, url string, a jetstream.Access) {
	t.Helper()
	q, err := jetstream.Open(t.Context(), jetstream.Config{URL: url, Access: a, Create: true, Model: queuetest.Model, Poll: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if _, err := q.Submit(t.Context(), job("a")); err != nil {
		t.Fatal(err)
	}
	d := must(q.Next(t.Context(), queue.Ingest))(t)
	if err := d.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, url string, a jetstream.Access, says string) {
	t.Helper()
	q, err := jetstream.Open(t.Context(), jetstream.Config{URL: url, Access: a})
	if err == nil {
		_ = q.Close()
	}
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("error is %v, wanted %q in it", err, says)
	}
	if err != nil && strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error gives a secret away: %v", err)
	}
}

func TestAccessByPassword(t *testing.T) {
	url := guarded(t, func(o *server.Options) { o.Username, o.Password = "lector", "s3cret" })
	pass(t, url, jetstream.Access{User: "lector", Password: "s3cret"})
	pass(t, strings.Replace(url, "nats://", "nats://lector:s3cret@", 1), jetstream.Access{})
	refused(t, url, jetstream.Access{}, "refuses this user")
	refused(t, strings.Replace(url, "nats://", "nats://nobody:s3cret@", 1), jetstream.Access{}, "refuses this user")
	refused(t, url, jetstream.Access{User: "lector", Token: "s3cret"}, "give one")
	refused(t, url, jetstream.Access{Password: "s3cret"}, "give both")
}

func TestAccessByToken(t *testing.T) {
	url := guarded(t, func(o *server.Options) { o.Authorization = "s3cret" })
	pass(t, url, jetstream.Access{Token: "s3cret"})
	refused(t, url, jetstream.Access{Token: "other"}, "refuses this user")
	refused(t, strings.Replace(url, "nats://", "nats://s3cretx@", 1), jetstream.Access{}, "refuses this user")
}

func TestAccessByNKey(t *testing.T) {
	user := must(nkeys.CreateUser())(t)
	public := must(user.PublicKey())(t)
	seed := must(user.Seed())(t)
	url := guarded(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	pass(t, url, jetstream.Access{NKey: write(t, "seed", seed)})
	other := must(must(nkeys.CreateUser())(t).Seed())(t)
	refused(t, url, jetstream.Access{NKey: write(t, "seed", other)}, "refuses this user")
	refused(t, url, jetstream.Access{NKey: filepath.Join(t.TempDir(), "none")}, "nkey seed")
	refused(t, url, jetstream.Access{NKey: write(t, "seed", []byte("no seed"))}, "nkey seed")
}

// An account of an operator, as a fleet's NATS has it: the user's credentials are one file.
func TestAccessByCredentials(t *testing.T) {
	operator, account, system, user := must(nkeys.CreateOperator())(t), must(nkeys.CreateAccount())(t), must(nkeys.CreateAccount())(t), must(nkeys.CreateUser())(t)
	claim := jwt.NewAccountClaims(must(account.PublicKey())(t))
	claim.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: jwt.NoLimit, MemoryStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	sys := jwt.NewAccountClaims(must(system.PublicKey())(t))
	resolver := &server.MemAccResolver{}
	for _, c := range []*jwt.AccountClaims{claim, sys} {
		if err := resolver.Store(c.Subject, must(c.Encode(operator))(t)); err != nil {
			t.Fatal(err)
		}
	}
	url := guarded(t, func(o *server.Options) {
		o.TrustedKeys = []string{must(operator.PublicKey())(t)}
		o.AccountResolver, o.SystemAccount = resolver, sys.Subject
	})
	token := must(jwt.NewUserClaims(must(user.PublicKey())(t)).Encode(account))(t)
	creds := must(jwt.FormatUserConfig(token, must(user.Seed())(t)))(t)
	pass(t, url, jetstream.Access{Creds: write(t, "user.creds", creds)})
	refused(t, url, jetstream.Access{}, "refuses this user")
	refused(t, url, jetstream.Access{Creds: filepath.Join(t.TempDir(), "none.creds")}, "credentials file")
}

// certificate makes a key pair, signed by parent or by itself.
func certificate(t *testing.T, parent *tls.Certificate) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "lector test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: parent == nil, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	issuer, signer := template, any(private)
	if parent != nil {
		issuer, signer = must(x509.ParseCertificate(parent.Certificate[0]))(t), parent.PrivateKey
	}
	der := must(x509.CreateCertificate(rand.Reader, template, issuer, &private.PublicKey, signer))(t)
	bytes := must(x509.MarshalECPrivateKey(private))(t)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes})
	return must(tls.X509KeyPair(certPEM, keyPEM))(t), write(t, "cert.pem", certPEM), write(t, "key.pem", keyPEM)
}

func TestAccessByCertificate(t *testing.T) {
	ca, caFile, _ := certificate(t, nil)
	host, _, _ := certificate(t, &ca)
	_, cert, key := certificate(t, &ca)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(caFile))(t))
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("first=%v", first), func(t *testing.T) {
			url := guarded(t, func(o *server.Options) {
				o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{host}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
				o.TLSTimeout, o.TLSHandshakeFirst = 10, first
			})
			pass(t, url, jetstream.Access{CA: caFile, Cert: cert, Key: key, TLSFirst: first})
			refused(t, url, jetstream.Access{Cert: cert, Key: key, TLSFirst: first}, "give the CA")
			refused(t, url, jetstream.Access{CA: caFile, Cert: cert, TLSFirst: first}, "give both")
		})
	}
}

func TestCannotConnect(t *testing.T) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	gone := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, "nats://lector:s3cret@"+gone, jetstream.Access{}, "no server answers")
	refused(t, guarded(t, func(o *server.Options) { o.JetStream = false }), jetstream.Access{}, "JetStream is off")
}
