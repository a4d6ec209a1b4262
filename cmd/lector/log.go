package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logFlags say what standard error holds beside results.
type logFlags struct {
	level  logLevel
	format logFormat

	once  sync.Once
	lines *zap.Logger // at the level
	notes *zap.Logger // what a command always says, as lines; nil where they stay text
}

func (l *logFlags) flags(f *pflag.FlagSet) {
	l.format = "console"
	f.Var(&l.level, "log-level", "least `level` of the log on standard error: debug, info, warn or error (default: info for worker, debug with -v, else error)")
	f.Var(&l.format, "log-format", "`form` of what goes to standard error: console, or json, one object a line")
}

// logLevel is a flag; its zero value is that none is given.
type logLevel struct {
	zapcore.Level
	given bool
}

// String is the level given.
func (l *logLevel) String() string {
	if !l.given {
		return ""
	}
	return l.Level.String()
}

// Set reads one of four levels; zap knows more, which would not mean what they say.
func (l *logLevel) Set(text string) error {
	for _, level := range []zapcore.Level{zap.DebugLevel, zap.InfoLevel, zap.WarnLevel, zap.ErrorLevel} {
		if text == level.String() {
			l.Level, l.given = level, true
			return nil
		}
	}
	return errors.New("it is debug, info, warn or error")
}

// Type names the flag's argument.
func (l *logLevel) Type() string { return "level" }

// logFormat is a flag.
type logFormat string

// String is the form given.
func (l *logFormat) String() string { return string(*l) }

// Set reads one of two forms.
func (l *logFormat) Set(text string) error {
	if text != "console" && text != "json" {
		return errors.New("it is console or json")
	}
	*l = logFormat(text)
	return nil
}

// Type names the flag's argument.
func (l *logFormat) Type() string { return "form" }

// logger is the log of this process. What becomes of a command's own job is its error or its result, so that
// without -v only alarms are said; a worker has no other way to say what became of its jobs.
func (a *app) logger() *zap.Logger {
	a.log.once.Do(a.openLog)
	return a.log.lines
}

func (a *app) openLog() {
	level := zapcore.ErrorLevel
	switch {
	case a.log.level.given:
		level = a.log.level.Level
	case a.verbose:
		level = zapcore.DebugLevel
	case len(a.serves) > 0:
		level = zapcore.InfoLevel
	}
	out := zapcore.Lock(zapcore.AddSync(a.err))
	if a.log.format != "json" {
		enc := zap.NewDevelopmentEncoderConfig()
		enc.EncodeCaller = nil
		a.log.lines = zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), out, level))
		return
	}
	enc := zap.NewProductionEncoderConfig()
	enc.TimeKey, enc.EncodeTime, enc.EncodeDuration = "time", zapcore.RFC3339NanoTimeEncoder, zapcore.SecondsDurationEncoder
	a.log.lines = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(enc), out, level))
	a.log.notes = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(enc), out, zapcore.DebugLevel))
}

// note says something beside the result.
func (a *app) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if a.logger(); a.log.notes != nil {
		a.log.notes.Info(text)
		return
	}
	fmt.Fprintln(a.err, text)
}

// fail says why the command ends.
func (a *app) fail(err error) {
	if a.logger(); a.log.notes != nil {
		a.log.notes.Error("the command failed", zap.Error(err))
		return
	}
	fmt.Fprintf(a.err, "lector: %v\n", oneLine(err))
}
