package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// audit reads every claim that the cluster has stored, and says which were taken while another's was valid.
type audit struct {
	nc      *nats.Conn
	consume jetstream.ConsumeContext

	mu     sync.Mutex
	held   map[string]heldLease
	claims int // of nodes
	taken  int // over from somebody whose time was up
	bad    []error
}

// heldLease is the last word on a lease.
type heldLease struct {
	sequence uint64
	holder   string
	until    time.Time // by the server's clock
}

// newAudit listens from now on.
func newAudit(ctx context.Context, url string) (*audit, error) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return nil, fmt.Errorf("listen to leases: %w", err)
	}
	a := &audit{nc: nc, held: map[string]heldLease{}}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	// The cluster may be between two leaders.
	for {
		consumer, err := js.OrderedConsumer(ctx, "KV_lector_leases", jetstream.OrderedConsumerConfig{})
		if err == nil {
			a.consume, err = consumer.Consume(a.hear, jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {})) // it goes on
		}
		if err == nil {
			return a, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("listen to leases: %w", err), a.close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (a *audit) close() error {
	if a.consume != nil {
		a.consume.Stop()
	}
	a.nc.Close()
	return nil
}

// hear compares a claim with the one that it replaced. Claims that were given back between are not heard of where another
// came at once: then the claim says that it replaced something else.
func (a *audit) hear(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		return // not of a stream
	}
	name := strings.TrimPrefix(msg.Subject(), "$KV.lector_leases.")
	a.mu.Lock()
	defer a.mu.Unlock()
	before, known := a.held[name]
	delete(a.held, name)
	if msg.Headers().Get("KV-Operation") != "" {
		return // given back
	}
	var claim struct {
		Holder string        `json:"holder"`
		TTL    time.Duration `json:"ttl"`
	}
	if err := json.Unmarshal(msg.Data(), &claim); err != nil {
		a.bad = append(a.bad, fmt.Errorf("lease %s: %w", name, err))
		return
	}
	a.held[name] = heldLease{meta.Sequence.Stream, claim.Holder, meta.Timestamp.Add(claim.TTL)}
	if !known || before.holder != claim.Holder {
		a.claims++
	}
	replaced, err := strconv.ParseUint(msg.Headers().Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	if !known || err != nil || replaced != before.sequence || before.holder == claim.Holder {
		return
	}
	a.taken++
	if early := before.until.Sub(meta.Timestamp); early > 0 {
		a.bad = append(a.bad, fmt.Errorf("lease %s was taken %v before its time was up", name, early))
	}
}

// report is what was found.
func (a *audit) report() (claims, taken int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claims == 0 {
		return 0, 0, errors.New("no lease was heard of: nothing says that no chunk was computed twice under valid leases")
	}
	return a.claims, a.taken, errors.Join(a.bad...)
}
