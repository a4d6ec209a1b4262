package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"lector/cmd/lector/tracing"
	"lector/engine/cpu"
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
	ackWait  time.Duration // of the queue; 0: the usual
	serves   []queue.Kind  // kinds of jobs that this command takes for others
	trust    trust
	nats     natsFlags
	log      logFlags
	watched  *watched        // what this process shows of itself; nil: nothing
	tracer   *tracing.Tracer // nil: no traces
	metrics  string          // address that figures are served on; "": none
	spooling
	holding
}

// globals declares the flags of every command.
func (a *app) globals(f *pflag.FlagSet) {
	f.StringVar(&a.data, "data", os.Getenv("LECTOR_DATA"), "`folder` of the local queue and store (default: $LECTOR_DATA, else the user's data folder)")
	f.StringVar(&a.store, "store", os.Getenv("LECTOR_STORE"), "`folder` that snapshots are kept in, or s3://bucket/prefix?region=... (default: store/ in the data folder)")
	f.StringVar(&a.model, "model", envOr("LECTOR_MODEL", "nano"), "checkpoint `folder`, or nano, the built-in demonstration model")
	f.StringVar(&a.tenant, "tenant", "default", "`name` that snapshots are kept under")
	f.StringVar(&a.norm, "mtp-hidden-norm", "grouped", "how the draft head reads the residual: grouped or flat")
	a.holding.flags(f)
	f.StringVar(&a.memory, "memory", "", "most `bytes` of memory that the process takes beside the mapped weights, such as 512M (default: no limit; half of the machine's for a packed store or a worker)")
	f.StringVar(&a.device, "device", envOr("LECTOR_DEVICE", "auto"), "`device` that computes: auto, metal, cuda, cpu, or soft (the GPU kernels on this processor, for tests)")
	f.StringVar(&a.class, "class", envOr("LECTOR_CLASS", cpu.Blocked), "numeric `class` that the CPU computes: "+strings.Join(cpu.Classes(), " or "))
	f.BoolVar(&a.float32, "float32", false, "compute products in float32 on a GPU instead of half: slower, another numeric class")
	f.IntVar(&a.workers, "threads", 0, "cores to use (default: all)")
	f.BoolVar(&a.compress, "compress", os.Getenv("LECTOR_COMPRESS") != "", "store blobs as zstd of their byte planes where that is smaller; what is so stored is read in any case (default: $LECTOR_COMPRESS is set)")
	a.trust.flags(f)
	a.spooling.flags(f)
	a.nats.flags(f)
	a.log.flags(f)
	f.BoolVarP(&a.verbose, "verbose", "v", false, "say more on standard error")
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
