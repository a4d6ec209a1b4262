package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lector/engine/cpu"
)

// topic is some of the flags that every command takes.
type topic struct {
	title string
	flags *pflag.FlagSet
}

// usual is the topic that every command's help shows; the others are on 'lector options'.
const usual = "Usual"

// topics declares the flags of every command, by what they are about.
func (a *app) topics() []topic {
	return []topic{
		topicOf(usual, a.usualFlags),
		topicOf("How the model computes; the class and the formats are part of a snapshot's identity", a.computeFlags),
		topicOf("Where states go and what they take", a.storeFlags),
		topicOf("Whose snapshots, and who may read or make them", a.trustFlags),
		topicOf("The queue of a fleet", a.nats.flags),
		topicOf("What is said on standard error", a.log.flags),
	}
}

func topicOf(title string, declare func(*pflag.FlagSet)) topic {
	t := topic{title, pflag.NewFlagSet(title, pflag.ContinueOnError)}
	t.flags.SortFlags = false
	declare(t.flags)
	return t
}

func (a *app) usualFlags(f *pflag.FlagSet) {
	f.StringVar(&a.model, "model", envOr("LECTOR_MODEL", "nano"), "checkpoint `folder`, or nano, the built-in demonstration model")
	f.StringVar(&a.device, "device", envOr("LECTOR_DEVICE", "auto"), "`device` that computes: auto, metal, cuda, cpu, or soft (the GPU kernels on this processor, for tests)")
	f.StringVar(&a.data, "data", os.Getenv("LECTOR_DATA"), "`folder` of the local queue and store (default: $LECTOR_DATA, else the user's data folder)")
	f.StringVar(&a.store, "store", os.Getenv("LECTOR_STORE"), "`folder` that snapshots are kept in, or s3://bucket/prefix?region=... (default: store/ in the data folder)")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "say more on standard error")
}

func (a *app) computeFlags(f *pflag.FlagSet) {
	f.IntVar(&a.workers, "threads", 0, "`cores` to use (default: all)")
	f.StringVar(&a.memory, "memory", "", "most `bytes` of memory that the process takes beside the mapped weights, such as 512M (default: no limit; half of the machine's for a packed store or a worker)")
	f.StringVar(&a.class, "class", envOr("LECTOR_CLASS", autoClass), "numeric `class` that the CPU computes: "+strings.Join(cpu.Classes(), ", ")+", or auto, the fastest of this machine")
	f.BoolVar(&a.float32, "float32", false, "compute products in float32 on a GPU instead of half: slower, another numeric class")
	a.holding.flags(f)
	f.StringVar(&a.norm, "mtp-hidden-norm", "grouped", "`how` the draft head reads the residual: grouped or flat")
}

func (a *app) storeFlags(f *pflag.FlagSet) {
	f.BoolVar(&a.compress, "compress", os.Getenv("LECTOR_COMPRESS") != "", "store blobs as zstd of their byte planes where that is smaller; what is so stored is read in any case (default: $LECTOR_COMPRESS is set)")
	f.StringVar(&a.sync, "store-sync", envOr("LECTOR_STORE_SYNC", syncDisk), "`what` a store in a folder waits for: disk, so that what it has stored survives a power cut, or none, for scratch stores: the end of any process loses nothing, a power cut may take what was stored last (default: $LECTOR_STORE_SYNC, else disk)")
	a.spooling.flags(f)
}

func (a *app) trustFlags(f *pflag.FlagSet) {
	f.StringVar(&a.tenant, "tenant", "default", "`name` that snapshots are kept under")
	a.trust.flags(f)
}

// foldOptions leaves only the usual ones of the topics in a command's help, which says where the others are.
func foldOptions(root *cobra.Command, topics []topic) {
	more := 0
	for _, t := range topics {
		root.PersistentFlags().AddFlagSet(t.flags)
		if t.title != usual {
			t.flags.VisitAll(func(*pflag.Flag) { more++ })
		}
	}
	root.SetUsageTemplate(root.UsageTemplate() + fmt.Sprintf("\nEvery command also takes the %d flags that \"%s options\" lists.\n", more, root.Name()))
	whole := root.UsageFunc()
	root.SetUsageFunc(func(c *cobra.Command) error {
		hide(topics, true)
		defer hide(topics, false) // a hidden flag would not be completed in a shell
		return whole(c)
	})
}

func hide(topics []topic, hidden bool) {
	for _, t := range topics {
		if t.title != usual {
			t.flags.VisitAll(func(f *pflag.Flag) { f.Hidden = hidden })
		}
	}
}

func newOptions(a *app, topics []topic) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that every command takes, by what they are about",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for i, t := range topics {
				if i > 0 {
					fmt.Fprintln(a.out)
				}
				if _, err := fmt.Fprintf(a.out, "%s:\n%s", t.title, t.flags.FlagUsages()); err != nil {
					return fmt.Errorf("print the flags: %w", err)
				}
			}
			return nil
		},
	}
}
