package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// closeTimeout is how long a scrape on its way may take to end.
const closeTimeout = 2 * time.Second

// Server answers /metrics, /healthz and /readyz.
type Server struct {
	listener net.Listener
	http     *http.Server
	done     chan error
}

// Serve listens on an address such as 127.0.0.1:9464; port 0 takes a free one.
func Serve(address string, m *Metrics, h *Health) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics on %q: %w: give an address such as 127.0.0.1:9464 that is free", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.Handle("GET /readyz", h)
	s := &Server{
		listener: l, done: make(chan error, 1),
		http: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute},
	}
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close stops listening and lets scrapes on their way end.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if serve := <-s.done; !errors.Is(serve, http.ErrServerClosed) {
		err = errors.Join(err, serve)
	}
	return err
}
