package jetstream_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"lector/queue"
	"lector/queue/jetstream"
	"lector/queue/queuetest"
)

// holdLock as the first argument makes the test binary a process that holds the lock of the folder named next until
// it is killed.
const holdLock = "hold-lock"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == holdLock {
		if _, err := jetstream.Lock(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		select {}
	}
	goleak.VerifyTestMain(m)
}

// ackWait leaves a loaded machine room for an Extend in time, and for the steps between two.
const ackWait = 2 * time.Second

func config(dir string) jetstream.Config {
	return jetstream.Config{Dir: dir, Model: queuetest.Model, AckWait: ackWait, Poll: 20 * time.Millisecond}
}

// serve starts the server of a folder and opens a queue on it.
func serve(t *testing.T, cfg jetstream.Config) (*jetstream.Server, *jetstream.Queue) {
	t.Helper()
	s, err := jetstream.Embedded(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	q, err := s.Queue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, q
}

func TestConformance(t *testing.T) {
	queuetest.Run(t, func(t *testing.T) queuetest.Subject {
		t.Parallel() // most of their time they wait
		cfg := config(t.TempDir())
		s, q := serve(t, cfg)
		return queuetest.Subject{
			Queue: q, AckWait: ackWait, Pass: time.Sleep,
			Restart: func() queue.Queue {
				if err := s.Close(); err != nil { // no delivery is settled by it
					t.Fatal(err)
				}
				_, q := serve(t, cfg)
				return q
			},
		}
	})
}
