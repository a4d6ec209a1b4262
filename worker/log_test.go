package worker_test

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"lector/engine"
	"lector/engine/enginetest"
	"lector/queue"
	"lector/worker"
)

// Every line of a job's log says which job, where, which attempt, and how far it is stored.
func TestLogLinesNameTheWork(t *testing.T) {
	core, lines := observer.New(zap.DebugLevel)
	r := newRig(t)
	r.Worker.Log = zap.New(core)
	grid := enginetest.ToyGrid
	receipt := r.ingest(prose(3 * grid))
	r.resume(receipt.HandleDigest, queue.ResumeOrder{Text: "Go on."})
	r.toy.BeforePrefill = enginetest.FailPrefill(r.toy.Prefills()+2, engine.ErrDevice)
	r.submit(r.ingestJob(prose(2*grid + 1)[1:], worker.IngestOptions{}))
	r.turn(r.Worker)
	levels := map[string]zapcore.Level{}
	last := map[string]int64{}
	for _, line := range lines.All() {
		f := line.ContextMap()
		id, _ := f["job"].(string)
		boundary, ok := f["boundary"].(int64)
		if id == "" || f["host"] != "test" || f["attempt"] != int64(1) || f["kind"] == "" || !ok {
			t.Fatalf("line %q does not say whose work it is: %v", line.Message, f)
		}
		if boundary < last[id] {
			t.Errorf("job %s goes back from boundary %d to %d", id, last[id], boundary)
		}
		last[id] = boundary
		levels[line.Message] = line.Level
	}
	if levels["started"] != zap.InfoLevel || levels["progress"] != zap.DebugLevel || levels["attempt ended"] != zap.WarnLevel {
		t.Errorf("levels %v", levels)
	}
	boundaries := map[int64]bool{}
	for _, b := range last {
		boundaries[b] = true
	}
	if len(last) != 3 || !boundaries[int64(3*grid)] || !boundaries[int64(grid)] {
		t.Errorf("the last boundaries of three jobs are %v", last)
	}
}
