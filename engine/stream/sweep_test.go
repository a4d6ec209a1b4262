package stream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lector/engine/ops"
	"lector/engine/stream"
	"lector/engine/stream/streamtest"
	"lector/engine/weights"
)

const experts = weights.PackedExpertsFile

// Whatever is wanted in whatever order, with any ring and limit: every record is right when it is used, is read at most
// once in a sweep, and not at all if it was there; the counts say so.
func TestSweepsKeepTheLaws(t *testing.T) {
	p := packedMany(t)
	rapid.Check(t, func(rt *rapid.T) {
		slots := rapid.IntRange(stream.MinSlots, 260).Draw(rt, "slots")
		r := newRig(t, p, slots, stream.Options{
			Ring:  rapid.IntRange(1, 70).Draw(rt, "ring"),
			Lanes: rapid.IntRange(1, 12).Draw(rt, "lanes"),
		})
		defer r.Close()
		for range rapid.IntRange(1, 8).Draw(rt, "sweeps") {
			if rapid.IntRange(0, 5).Draw(rt, "resize") == 0 {
				r.Limit(rapid.IntRange(0, 300).Draw(rt, "limit"))
			}
			layer := rapid.IntRange(0, p.Layers()-1).Draw(rt, "layer")
			var wants []ops.Want
			src := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
			for _, e := range src.Perm(p.Experts(layer))[src.IntN(p.Experts(layer)+1):] {
				wants = append(wants, ops.Want{Expert: e, Rows: 1 + src.IntN(50)})
			}
			before := r.Stats()
			r.disk.Set()
			hits, err := r.run(t, context.Background(), layer, rapid.Bool().Draw(rt, "recent"), wants)
			if err != nil {
				rt.Fatal(err)
			}
			reads, bytes := r.disk.Reads(experts), int64(0)
			seen := map[int64]bool{}
			for _, read := range reads {
				if seen[read.Offset] {
					rt.Fatalf("offset %d was read twice", read.Offset)
				}
				seen[read.Offset] = true
			}
			for _, w := range wants {
				if seen[p.RecordOffset(layer, w.Expert)] {
					bytes += int64(p.ExpertBytes(layer, w.Expert))
				}
			}
			got := r.Stats().Sub(before)
			if want := (stream.Stats{Records: len(wants) - hits, Bytes: bytes, Hits: hits, RingWait: got.RingWait}); got != want || len(reads) != want.Records {
				rt.Fatalf("stats %+v after %d reads, want %+v", got, len(reads), want)
			}
		}
	})
}

// With room for all records the second pass reads nothing.
func TestRoomForAllReadsOnce(t *testing.T) {
	p := packedTiny(t)
	for _, ring := range []int{16, 64} {
		r := newRig(t, p, stream.Records(p), stream.Options{Ring: ring})
		for pass := range 3 {
			for layer := range p.Layers() {
				hits, err := r.run(t, context.Background(), layer, false, r.all(layer, one))
				if err != nil || hits != min(pass, 1)*8 {
					t.Errorf("ring %d, pass %d, layer %d: %d hits, %v", ring, pass, layer, hits, err)
				}
			}
		}
		if got := r.Stats(); got.Records != stream.Records(p) {
			t.Errorf("%d records were read, there are %d", got.Records, stream.Records(p))
		}
	}
}

// A pool keeps the records that most rows go to, where records pass by in a circle and the last used ones never return
// in time.
func TestPrefillKeepsTheMostUsed(t *testing.T) {
	p := packedTiny(t)
	r := newRig(t, p, 16+18, stream.Options{Ring: 16})
	rows := func(e int) int { return 10 + 90*(1-min(e, 2)/2) } // experts 0 and 1 of 9 layers are 18 records
	for range 3 {
		for layer := range p.Layers() {
			if _, err := r.run(t, context.Background(), layer, false, r.all(layer, rows)); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := r.Stats()
	for layer := range p.Layers() {
		sweep := r.Layer(context.Background(), layer, false).Sweep(r.all(layer, rows))
		for _, item := range sweep.Items() {
			if item.Hit != (item.Expert < 2) {
				t.Errorf("layer %d expert %d: hit %v", layer, item.Expert, item.Hit)
			}
		}
		if err := sweep.Wait(len(sweep.Items()) - 1); err != nil {
			t.Fatal(err)
		}
		if err := sweep.End(); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Stats().Sub(before); got.Hits != 18 {
		t.Errorf("%d hits, want 18", got.Hits)
	}
}

// Decoding keeps what was used last.
func TestDecodeKeepsTheLastUsed(t *testing.T) {
	p := packedTiny(t)
	r := newRig(t, p, 16+9, stream.Options{Ring: 16})
	for _, e := range []int{0, 1, 2, 2, 5, 5} {
		for layer := range p.Layers() {
			if _, err := r.run(t, context.Background(), layer, true, []ops.Want{{Expert: e, Rows: 1}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.Stats(); got.Hits != 18 || got.Records != 36 {
		t.Errorf("%+v, want 18 hits and 36 records", got)
	}
}

func TestLimitGivesSlotsBack(t *testing.T) {
	p := packedTiny(t)
	var released []int
	mem, err := stream.Memory(40, stream.SlotBytes(p))
	if err != nil {
		t.Fatal(err)
	}
	drop := mem.Release
	mem.Release = func(i int) { released = append(released, i); drop(i) }
	r := &rig{packed: p, disk: &streamtest.Disk{}, slots: mem}
	r.open(t, stream.Options{Ring: 16})
	for layer := range 5 {
		if _, err := r.run(t, context.Background(), layer, true, r.all(layer, one)); err != nil {
			t.Fatal(err)
		}
	}
	r.Limit(20)
	want := []int{}
	for i := 20; i < 40; i++ {
		want = append(want, i)
	}
	if !slices.Equal(released, want) {
		t.Errorf("released %v, want %v", released, want)
	}
	for layer := range 5 {
		if _, err := r.run(t, context.Background(), layer, true, r.all(layer, one)); err != nil {
			t.Fatal(err)
		}
	}
	r.Limit(0)
	if hits, err := r.run(t, context.Background(), 0, true, r.all(0, one)); err != nil || hits > 16 {
		t.Errorf("%d hits with a ring of 16, %v", hits, err)
	}
}

var errDisk = errors.New("injected")

// faults are rules with what they must end in.
func faults(cancel func()) []struct {
	name string
	rule streamtest.Rule
	want error
} {
	return []struct {
		name string
		rule streamtest.Rule
		want error
	}{
		{"error at the first read", streamtest.Rule{First: 1, Err: errDisk}, stream.ErrRead},
		{"error at the sixth read", streamtest.Rule{First: 6, Times: 1, Err: errDisk}, stream.ErrRead},
		{"end of file", streamtest.Rule{First: 3, Err: io.EOF}, stream.ErrRead},
		{"short read", streamtest.Rule{First: 4, Times: 1, Short: 100}, stream.ErrRead},
		{"flipped bit", streamtest.Rule{First: 2, Times: 1, Flip: true}, stream.ErrRecord},
		{"cancelled in the middle", streamtest.Rule{First: 4, Times: 1, Do: cancel}, context.Canceled},
		{"cancelled while reads are slow", streamtest.Rule{First: 1, Delay: 2 * time.Millisecond, Do: cancel}, context.Canceled},
	}
}

// A fault ends the sweep with a typed error; the next one is right again.
func TestFaultsEndTheSweep(t *testing.T) {
	p := packedMany(t)
	for _, lanes := range []int{1, 4} {
		var ctx context.Context
		var cancel context.CancelFunc
		for _, f := range faults(func() { cancel() }) {
			ctx, cancel = context.WithCancel(context.Background())
			r := newRig(t, p, 24, stream.Options{Ring: 16, Lanes: lanes})
			if _, err := r.run(t, context.Background(), 0, true, r.all(0, one)); err != nil {
				t.Fatal(err)
			}
			f.rule.File = experts
			r.disk.Set(f.rule)
			before := r.Stats()
			_, err := r.run(t, ctx, 1, true, r.all(1, one))
			if !errors.Is(err, f.want) {
				t.Errorf("%s: %v, want %v", f.name, err, f.want)
			}
			if f.rule.Err != nil && !errors.Is(err, f.rule.Err) {
				t.Errorf("%s: %v does not wrap the disk's error", f.name, err)
			}
			if got := r.Stats().Sub(before); got.Records > 47 {
				t.Errorf("%s: %d records count as read", f.name, got.Records)
			}
			r.disk.Set()
			for _, layer := range []int{1, 0, 1} {
				if _, err := r.run(t, context.Background(), layer, true, r.all(layer, one)); err != nil {
					t.Errorf("%s, then: %v", f.name, err)
				}
			}
			cancel()
		}
	}
}

// While the user keeps all slots, the reader waits and says for how long; it goes on when slots are given back.
func TestRingWaitIsCounted(t *testing.T) {
	p := packedMany(t)
	r := newRig(t, p, 16, stream.Options{Lanes: 3})
	sweep := r.Layer(context.Background(), 0, false).Sweep(r.all(0, one))
	if err := sweep.Wait(15); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	if got := len(r.disk.Reads(experts)); got != 16 {
		t.Errorf("%d records were read into 16 slots that are all in use", got)
	}
	for from := 0; from < 48; from += 8 {
		if err := sweep.Wait(from + 7); err != nil {
			t.Fatal(err)
		}
		sweep.Done(from + 7)
	}
	if err := sweep.End(); err != nil {
		t.Fatal(err)
	}
	if got := r.Stats(); got.RingWait < 4*time.Millisecond || got.Records != 48 {
		t.Errorf("%+v: the reader waited 5 ms at least", got)
	}
}

// A slow disk changes nothing but time.
func TestSlowReadsArriveInOrder(t *testing.T) {
	p := packedMany(t)
	r := newRig(t, p, 16, stream.Options{Ring: 16, Lanes: 8})
	r.disk.Set(streamtest.Rule{File: experts, First: 1, Times: 1, Delay: 20 * time.Millisecond})
	if _, err := r.run(t, context.Background(), 0, false, r.all(0, one)); err != nil {
		t.Fatal(err)
	}
}

// A device that counts for itself gets every ticket, in order, and its slots are not overwritten before it is done.
func TestDeviceSeesEveryTicket(t *testing.T) {
	p := packedMany(t)
	d := &device{}
	mem, err := stream.Memory(40, stream.SlotBytes(p))
	if err != nil {
		t.Fatal(err)
	}
	mem.Fetched, mem.Done = &d.fetched, &d.done
	r := &rig{packed: p, disk: &streamtest.Disk{}, slots: mem}
	r.open(t, stream.Options{Ring: 16})
	for pass := range 3 {
		for layer := range p.Layers() {
			sweep := r.Layer(context.Background(), layer, pass == 2).Sweep(r.all(layer, one))
			d.run(context.Background(), sweep.Items(), func(item ops.Item) {
				want := r.record(layer, item.Expert)
				if !bytes.Equal(r.slots.Mem[item.Slot][:len(want)], want) {
					t.Errorf("layer %d expert %d: slot %d holds something else", layer, item.Expert, item.Slot)
				}
			})
			d.work.Wait()
			if err := sweep.End(); err != nil {
				t.Fatal(err)
			}
			items := sweep.Items()
			if last := items[len(items)-1].Ticket; d.fetched.Value() != last || d.done.Value() != last {
				t.Fatalf("fetched %d, done %d, want %d", d.fetched.Value(), d.done.Value(), last)
			}
		}
	}
}

// After a fault the device is not left waiting.
func TestFaultFreesTheDevice(t *testing.T) {
	p := packedMany(t)
	d := &device{}
	mem, err := stream.Memory(16, stream.SlotBytes(p))
	if err != nil {
		t.Fatal(err)
	}
	mem.Fetched, mem.Done = &d.fetched, &d.done
	r := &rig{packed: p, disk: &streamtest.Disk{}, slots: mem}
	r.open(t, stream.Options{Ring: 16})
	r.disk.Set(streamtest.Rule{File: experts, First: 13, Err: errDisk})
	sweep := r.Layer(context.Background(), 0, false).Sweep(r.all(0, one))
	d.run(context.Background(), sweep.Items(), func(ops.Item) {})
	d.work.Wait() // would never return
	if err := sweep.End(); !errors.Is(err, stream.ErrRead) {
		t.Errorf("%v, want %v", err, stream.ErrRead)
	}
	if err := sweep.Wait(0); !errors.Is(err, stream.ErrEnded) {
		t.Errorf("waiting for a sweep that has ended: %v", err)
	}
	// A device that died never signals; the store goes on without it.
	r.disk.Set()
	for layer := range 4 {
		sweep := r.Layer(context.Background(), layer, false).Sweep(r.all(layer, one)[:16])
		if err := sweep.Wait(15); err != nil {
			t.Fatal(err)
		}
		if err := sweep.End(); err != nil {
			t.Fatal(err)
		}
	}
}

// A sweep that its user gives up before the end leaves nothing behind.
func TestAbandonedSweep(t *testing.T) {
	p := packedTiny(t)
	r := newRig(t, p, 16, stream.Options{Lanes: 2})
	r.disk.Set(streamtest.Rule{File: experts, First: 2, Delay: 5 * time.Millisecond})
	sweep := r.Layer(context.Background(), 0, false).Sweep(r.all(0, one))
	if err := sweep.Wait(0); err != nil {
		t.Fatal(err)
	}
	if err := sweep.End(); !errors.Is(err, stream.ErrEnded) {
		t.Errorf("%v, want %v", err, stream.ErrEnded)
	}
	r.disk.Set()
	if _, err := r.run(t, context.Background(), 0, false, r.all(0, one)); err != nil {
		t.Error(err)
	}
	if _, err := r.run(t, context.Background(), 1, false, nil); err != nil {
		t.Errorf("nothing wanted: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	p := packedTiny(t)
	for _, c := range []struct{ slots, size int }{{15, stream.SlotBytes(p)}, {16, stream.SlotBytes(p) - 1}} {
		mem, err := stream.Memory(c.slots, c.size)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := stream.Open(p, mem, noView, stream.Options{}); err == nil {
			t.Errorf("%d slots of %d bytes are taken", c.slots, c.size)
			s.Close()
		}
	}
}

// A record is arranged once each time that it is read, after its checksum was compared and before it is used; what fails
// there is the sweep's error.
func TestRecordsAreArrangedOnceRead(t *testing.T) {
	p := packedTiny(t)
	fault := errors.New("no order")
	for _, fails := range []bool{false, true} {
		var arranged atomic.Int64
		r := newRig(t, p, stream.Records(p), stream.Options{Ring: 16, Arrange: func(_, _ int, record []byte) error {
			arranged.Add(1)
			if fails {
				return fault
			}
			record[0]++
			return nil
		}})
		for layer := range p.Layers() { // what is compared with holds the same
			for e := range p.Experts(layer) {
				r.record(layer, e)[0]++
			}
		}
		for range 2 {
			_, err := r.run(t, context.Background(), 0, true, r.all(0, one))
			if fails != errors.Is(err, fault) || fails != errors.Is(err, stream.ErrRecord) {
				t.Errorf("a sweep ends with %v", err)
			}
		}
		if got := arranged.Load(); !fails && got != int64(p.Experts(0)) {
			t.Errorf("%d records were arranged, %d were read", got, p.Experts(0))
		}
	}
}
