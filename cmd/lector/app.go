package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"lector/cmd/lector/tracing"
	"lector/queue"
)

// app is what every command shares: the streams and the global flags.
type app struct {
	streams
	data     string // folder of queue and store
	store    string // where snapshots are kept, a folder or s3://...; "" is a folder of data
	model    string // checkpoint folder, or nano
	tenant   string
	norm     string // mtp_hidden_norm
	memory   string
	device   string
	class    string // numeric class of the CPU
	float32  bool   // products in float32 where a device would stage in half
	workers  int
	verbose  bool
	compress bool          // blobs that are written
	sync     string        // what a folder store waits for: syncDisk or syncNone
	ackWait  time.Duration // of the queue; 0: the usual
	serves   []queue.Kind  // kinds of jobs that this command takes for others
	visits   bool          // this command only looks or submits: what an earlier owner left is for those that work
	trust    trust
	nats     natsFlags
	log      logFlags
	watched  *watched        // what this process shows of itself; nil: nothing
	tracer   *tracing.Tracer // nil: no traces
	metrics  string          // address that figures are served on; "": none
	spooling
	holding
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// dataFolder is --data, or the usual place of the system.
func (a *app) dataFolder() (string, error) {
	if a.data != "" {
		return filepath.Abs(a.data)
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "lector"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", badInput(fmt.Errorf("find a data folder: %w: give one with --data", err))
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "lector"), nil
	}
	return filepath.Join(home, ".local", "share", "lector"), nil
}

// memoryBytes reads --memory.
func (a *app) memoryBytes() (int, error) {
	if a.memory == "" {
		return 0, nil
	}
	n, err := sizeOf("--memory", a.memory)
	return int(n), err
}

// sizeOf reads the bytes that a flag gives.
func sizeOf(flag, text string) (int64, error) {
	number, unit := strings.TrimRight(strings.ToUpper(text), "IB"), 1
	for suffix, size := range map[string]int{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = rest, size
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n <= 0 || n*float64(unit) > 1<<50 {
		return 0, badInput(fmt.Errorf("%s %q is not a size such as 512M or 4G", flag, text))
	}
	return int64(n * float64(unit)), nil
}

// terminal says that a person watches standard error.
func (a *app) terminal() bool {
	f, ok := a.err.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
