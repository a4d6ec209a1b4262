package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lector/queue/jetstream"
)

// Flags come before the context and the context before the environment; an identity is never put together from two of them.
func TestNATSAccess(t *testing.T) {
	config, home := t.TempDir(), t.TempDir()
	for _, name := range []string{"NATS_CREDS", "NATS_NKEY", "NATS_TOKEN", "NATS_CERT", "NATS_KEY"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_CONFIG_HOME", config)
	t.Setenv("HOME", home)
	t.Setenv("NATS_USER", "outer")
	t.Setenv("NATS_PASSWORD", "secret")
	t.Setenv("NATS_CA", "outer-ca.pem")
	folder := filepath.Join(config, "nats", "context")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"fleet":  `{"description": "the fleet", "url": "nats://a:4222,nats://b:4222", "creds": "~/user.creds", "ca": "ca.pem", "tls_first": true}`,
		"local":  `{"user": "", "creds": ""}`,
		"broken": `{"url": 7}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name+".json"), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outer := jetstream.Access{User: "outer", Password: "secret", CA: "outer-ca.pem"}
	for _, tt := range []struct {
		name  string
		flags natsFlags
		url   string
		want  jetstream.Access
		says  string
	}{
		{name: "environment", flags: natsFlags{url: "nats://c"}, url: "nats://c", want: outer},
		{name: "context", flags: natsFlags{context: "fleet"}, url: "nats://a:4222,nats://b:4222",
			want: jetstream.Access{Creds: filepath.Join(home, "user.creds"), CA: "ca.pem", TLSFirst: true}},
		{name: "context by path", flags: natsFlags{context: filepath.Join(folder, "fleet.json"), url: "nats://c"}, url: "nats://c",
			want: jetstream.Access{Creds: filepath.Join(home, "user.creds"), CA: "ca.pem", TLSFirst: true}},
		{name: "flags before both", flags: natsFlags{context: "fleet", access: jetstream.Access{NKey: "seed", CA: "mine.pem"}},
			url: "nats://a:4222,nats://b:4222", want: jetstream.Access{NKey: "seed", CA: "mine.pem", TLSFirst: true}},
		{name: "context without an address", flags: natsFlags{context: "local"}, says: "--nats"},
		{name: "unknown context", flags: natsFlags{context: "nowhere"}, says: "nats context add"},
		{name: "broken context", flags: natsFlags{context: "broken"}, says: "broken.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, got, err := tt.flags.resolve()
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) || exitCode(err) != exitInput {
					t.Fatalf("error is %v, wanted %q in it", err, tt.says)
				}
				return
			}
			if err != nil || url != tt.url {
				t.Fatalf("address is %q, wanted %q: %v", url, tt.url, err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}
