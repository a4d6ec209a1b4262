package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"lector/queue"
)

// errDisk says that this host has no room for a job's state; another may have.
var errDisk = errors.New("disk is nearly full")

// Disk is the room on this host's disk for what the worker writes.
type Disk struct {
	// Free is the bytes that are left.
	Free func() (int64, error)
	// Least is how many must be left; with less the worker takes no jobs.
	Least int64
	// Holds says that states stay on this disk: a document is begun only where its state leaves Least.
	Holds bool
}

// roomy waits until the disk has room, or ctx ends. It says once that it waits.
func (w *Worker) roomy(ctx context.Context) error {
	if w.Disk == nil {
		return nil
	}
	for told := false; ctx.Err() == nil; told = true {
		free, err := w.Disk.Free()
		if err != nil {
			return fmt.Errorf("ask for free disk: %w", err)
		}
		if free >= w.Disk.Least {
			return nil
		}
		if !told && w.Log != nil {
			w.Log.Warn("no jobs are taken: the disk is nearly full", zap.Int64("free", free), zap.Int64("least", w.Disk.Least))
		}
		select {
		case <-time.After(w.Config.withDefaults().DiskPoll):
		case <-ctx.Done():
		}
	}
	return nil
}

// fitsDisk refuses a document whose state the disk has no room for.
func (a *attempt) fitsDisk(order *queue.IngestOrder) error {
	if a.Disk == nil || !a.Disk.Holds || order.KeepState == queue.KeepNone {
		return nil
	}
	free, err := a.Disk.Free()
	if err != nil {
		return fmt.Errorf("ask for free disk: %w", err)
	}
	info := a.Engine.Info()
	need := int64(order.Tokens)*int64(info.BytesPerToken) + int64(a.config.KeepSpread+2)*int64(info.FixedBytes)
	if free-need < a.Disk.Least {
		return fmt.Errorf("%w: the state of %d tokens takes up to %d bytes, %d are free and %d must stay", errDisk, order.Tokens, need, free, a.Disk.Least)
	}
	return nil
}
