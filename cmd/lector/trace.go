package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"lector/cmd/lector/tracing"
	"lector/queue"
	"lector/worker"
)

// traceTimeout bounds the sending of the last spans: a collector that is away must not hold a command.
const traceTimeout = 5 * time.Second

// openTracer draws traces where the standard variables of OpenTelemetry ask for it: with OTEL_EXPORTER_OTLP_ENDPOINT
// or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. The library reads the others itself. nil draws nothing.
func openTracer(ctx context.Context) (*tracing.Tracer, error) {
	endpoint := envOr("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	exporter := envOr("OTEL_TRACES_EXPORTER", "otlp")
	if endpoint == "" || exporter == "none" || os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nil, nil
	}
	if exporter != "otlp" {
		return nil, badInput(fmt.Errorf("OTEL_TRACES_EXPORTER=%s: lector sends traces by otlp: set that, or none", exporter))
	}
	protocol := envOr("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	if protocol != "" && protocol != "http/protobuf" {
		return nil, badInput(fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: lector sends traces as http/protobuf, to port 4318 of most collectors", protocol))
	}
	return tracing.Open(ctx, tracing.Process{Name: "lector", Version: version()})
}

// drawer is nil where nobody draws.
func (s *session) drawer() worker.Tracer {
	if s.tracer == nil {
		return nil
	}
	return s.tracer
}

// submit puts a job into the queue, in a trace of its own that whoever works on it joins.
func (s *session) submit(ctx context.Context, job queue.Job) (status queue.Status, err error) {
	if s.tracer != nil {
		traced, end := s.tracer.Start(ctx, "submit")
		defer func() { end(err) }()
		s.tracer.Text(traced, "lector.job", job.ID)
		ctx, job.Trace = traced, s.tracer.Trace(traced)
	}
	err = s.atQueue(ctx, func() error {
		status, err = s.queue.Submit(ctx, job)
		return err
	})
	return status, err
}

// closeTracer sends the last spans.
func (s *session) closeTracer() error {
	if s.tracer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceTimeout)
	defer cancel()
	return s.tracer.Close(ctx)
}
