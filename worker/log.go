package worker

import (
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
	if line := a.log.Check(level, text); line != nil {
		line.Write(append(fields, zap.Int("boundary", a.lastGood))...)
	}
}

// levelOf is how much an event matters in a log that goes on for weeks: that an attempt began is worth a line,
// every chunk of it is not, and how it came out has a line of its own.
func levelOf(t queue.EventType) zapcore.Level {
	if t == queue.EventStarted {
		return zap.InfoLevel
	}
	return zap.DebugLevel
}
