package worker

import (
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"lector/queue"
)

// jobLog is the log of an attempt: every line says whose work it is, where, and (from say) how far it is stored.
func (w *Worker) jobLog(job queue.Job, attempt int) *zap.Logger {
	log := w.Log
	if log == nil {
		log = zap.NewNop()
	}
	return log.With(zap.String("job", job.ID), zap.String("kind", string(job.Kind)), zap.Int("attempt", attempt), zap.String("host", w.Host))
}

// say writes a line of the attempt's log.
func (a *attempt) say(level zapcore.Level, text string, fields ...zap.Field) {
	line := a.log.Check(level, text)
	if line == nil {
		return
	}
	a.stored.mu.Lock() // no line of a job names a boundary before that of the line above it
	defer a.stored.mu.Unlock()
	line.Write(append(fields, zap.Int("boundary", a.stored.tokens))...)
}

// stored is how far an attempt's document is known to be stored. Events that are told beside the work name it in the log.
type stored struct {
	mu     sync.Mutex
	tokens int // of the deepest boundary
}

// good is the deepest boundary known to be stored, in tokens.
func (a *attempt) good() int {
	a.stored.mu.Lock()
	defer a.stored.mu.Unlock()
	return a.stored.tokens
}

// reached notes that a boundary is stored, unless a deeper one is known.
func (a *attempt) reached(tokens int) {
	a.stored.mu.Lock()
	defer a.stored.mu.Unlock()
	a.stored.tokens = max(a.stored.tokens, tokens)
}

// levelOf is how much an event matters in a log that goes on for weeks: that an attempt began is worth a line,
// every chunk of it is not, and how it came out has a line of its own.
func levelOf(t queue.EventType) zapcore.Level {
	if t == queue.EventStarted {
		return zap.InfoLevel
	}
	return zap.DebugLevel
}
