package deploy_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"lector/cache/s3/s3test"
	"lector/queue"
	"lector/queue/jetstream"
)

// cluster starts the three servers of nats/cluster on loopback, with nothing changed but addresses and folders.
func cluster(t *testing.T) (urls string) {
	t.Helper()
	t.Setenv("LECTOR_NATS_PASSWORD", "a-password")
	names := []string{"nats1", "nats2", "nats3"}
	free, err := s3test.FreePorts(len(names))
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]int{}
	for i, name := range names {
		ports[name] = free[i]
	}
	for _, name := range names {
		o, err := server.ProcessConfigFile(filepath.Join("nats", "cluster", name+".conf"))
		if err != nil {
			t.Fatal(err)
		}
		if o.ServerName != name || o.Cluster.Port != 6222 || o.Port != 4222 || len(o.Routes) != 2 || !o.SyncAlways {
			t.Errorf("%s says %s, ports %d and %d, routes %v", name, o.ServerName, o.Port, o.Cluster.Port, o.Routes)
		}
		routes := slices.Clone(names)
		routes = slices.DeleteFunc(routes, func(n string) bool { return n == name })
		for i, r := range o.Routes {
			if r.Host != routes[i]+":6222" {
				t.Errorf("%s goes to %s", name, r.Host)
			}
			if o.Routes[i], err = url.Parse(fmt.Sprintf("nats://127.0.0.1:%d", ports[routes[i]])); err != nil {
				t.Fatal(err)
			}
		}
		o.Host, o.Port, o.HTTPPort, o.StoreDir = "127.0.0.1", server.RANDOM_PORT, 0, t.TempDir()
		o.Cluster.Host, o.Cluster.Port = "127.0.0.1", ports[name]
		o.JetStreamMaxStore, o.NoSigs, o.NoLog = 1<<30, true, true
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(time.Minute) {
			t.Fatalf("%s does not start", name)
		}
		urls += "," + s.ClientURL()
	}
	return urls[1:]
}

// The example cluster takes the queue with three copies of everything, and only with the password.
func TestClusterTakesTheQueue(t *testing.T) {
	urls := cluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cfg := jetstream.Config{URL: urls, Create: true, Replicas: 3, Timeout: 20 * time.Second, Model: "model", Options: []nats.Option{nats.UserInfo("lector", "a-password")}}
	var q *jetstream.Queue
	var err error
	for q == nil { // the servers elect a leader first
		if q, err = jetstream.Open(ctx, cfg); err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	defer q.Close()
	job := queue.Job{
		Version: queue.JobVersion, ID: "a", Kind: queue.Ingest, Model: "model", Priority: "normal", Submitted: time.Now(),
		Ingest: &queue.IngestOrder{Document: "d", Tokens: 7},
	}
	if _, err := q.Submit(ctx, job); err != nil {
		t.Fatal(err)
	}
	d, err := q.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Done(ctx); err != nil {
		t.Fatal(err)
	}
	cfg.Options = []nats.Option{nats.UserInfo("lector", "guessed")}
	if q, err := jetstream.Open(ctx, cfg); err == nil {
		t.Error("the cluster takes anybody", q.Close())
	}
}
