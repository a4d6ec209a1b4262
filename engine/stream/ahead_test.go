package stream_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"lector/engine/ops"
	"lector/engine/stream"
	"lector/engine/stream/streamtest"
	"lector/engine/weights"
)

// slow is a user that ends a sweep when it is told to, as a device does that works behind the host.
type slow struct {
	*rig
	t     *testing.T
	items []ops.Item
	sweep ops.Sweep
}

// use goes through a sweep, looks at every record and leaves it open.
func (s *slow) use(layer int, wants []ops.Want) {
	s.t.Helper()
	s.sweep = s.Layer(context.Background(), layer, false).Sweep(wants)
	s.items = s.sweep.Items()
	for from := 0; from < len(s.items); from += 8 {
		to := min(from+8, len(s.items))
		if err := s.sweep.Wait(to - 1); err != nil {
			s.sweep.End()
			s.t.Fatal(err)
		}
		for _, item := range s.items[from:to] {
			want := s.record(layer, item.Expert)
			if !bytes.Equal(s.slots.Mem[item.Slot][:len(want)], want) {
				s.sweep.End()
				s.t.Fatalf("layer %d expert %d: slot %d holds something else", layer, item.Expert, item.Slot)
			}
		}
		s.sweep.Done(to - 1)
	}
}

// until waits for n reads of records since the disk was set.
func (s *slow) until(n int) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); len(s.disk.Reads(weights.PackedExpertsFile)) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.sweep.End()
			s.t.Fatalf("%d reads, want %d", len(s.disk.Reads(weights.PackedExpertsFile)), n)
		}
	}
}

func (s *slow) end() {
	s.t.Helper()
	if err := s.sweep.End(); err != nil {
		s.t.Fatal(err)
	}
}

// rows wants every expert but those of skip, each with n rows.
func (s *slow) rows(layer, n int, skip ...int) (wants []ops.Want) {
	for _, w := range s.all(layer, func(int) int { return n }) {
		if len(skip) == 0 || w.Expert != skip[0] {
			wants = append(wants, w)
		}
	}
	return wants
}

// While a sweep is open the ring fills with records of the next layer, each of which is read once in all; how many the
// ring has room for is not known to be wanted any other way than by the chunk before.
func TestReadsAheadOfTheNextLayer(t *testing.T) {
	p := packedMany(t)
	s := &slow{rig: newRig(t, p, 20, stream.Options{Ring: 20, Ahead: true}), t: t}
	s.use(0, s.rows(0, 9))
	s.end()
	s.use(1, s.rows(1, 9, 30)) // a chunk before this one: expert 30 got no rows
	s.end()
	if got := s.Stats(); got.Records != 48+47 {
		t.Errorf("%d records were read before anything was known of a layer", got.Records)
	}
	s.disk.Set()
	s.use(0, s.rows(0, 9))
	own := 0
	for _, item := range s.items {
		if !item.Hit {
			own++
		}
	}
	s.until(own + 20) // the ring is full of layer 1
	s.end()
	if got := len(s.disk.Reads(weights.PackedExpertsFile)); got != own+20 {
		t.Errorf("%d reads for %d records and a ring of 20", got, own)
	}
	s.disk.Set()
	before := s.Stats()
	s.use(1, s.rows(1, 9)) // expert 30 as well
	s.end()
	reads, offsets := s.disk.Reads(weights.PackedExpertsFile), map[int64]bool{}
	for _, r := range reads {
		if r.Offset >= p.RecordOffset(1, 0) && r.Offset < p.RecordOffset(2, 0) {
			offsets[r.Offset] = true
		}
	}
	if len(offsets) != 48-20 {
		t.Errorf("%d records of the layer are read, 20 of 48 were there", len(offsets))
	}
	for _, item := range s.items {
		if item.Hit {
			t.Errorf("expert %d was read for this chunk, and counts as there before", item.Expert)
		}
	}
	if got := s.Stats().Sub(before); got.Hits != 0 {
		t.Errorf("%d hits", got.Hits)
	}
}

// An error in what nobody asked for yet is nobody's; who asks then gets it, or the record.
func TestAheadFaults(t *testing.T) {
	p := packedMany(t)
	for name, rule := range map[string]streamtest.Rule{"a failed read": {Err: errors.New("no disk")}, "damage": {Flip: true}, "a short read": {Short: 5}} {
		s := &slow{rig: newRig(t, p, 20, stream.Options{Ring: 20, Ahead: true, Lanes: 1}), t: t} // one after another
		for layer := range 2 {
			s.use(layer, s.rows(layer, 9))
			s.end()
		}
		s.disk.Set()
		s.use(0, s.rows(0, 9))
		s.until(48 + 20)
		s.end()
		s.use(2, s.rows(2, 9)) // the ring holds nothing of the next layer any more
		s.end()
		rule.File, rule.First = weights.PackedExpertsFile, 49
		s.disk.Set(rule)
		s.use(0, s.rows(0, 9))
		s.until(49)
		s.end() // no error of this sweep
		s.disk.Set()
		s.use(1, s.rows(1, 9)) // looks at every record
		s.end()
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// A sweep that ends at once stops what is read ahead: what was under way is kept, what was not is left.
func TestAheadStopsAtTheEnd(t *testing.T) {
	p := packedMany(t)
	s := &slow{rig: newRig(t, p, 20, stream.Options{Ring: 20, Ahead: true, Lanes: 2}), t: t}
	for pass := range 3 {
		for layer := range p.Layers() {
			s.use(layer, s.rows(layer, 9, pass))
			s.end()
		}
	}
	if got, least := s.Stats().Records, 3*p.Layers()*47; got > least+20*p.Layers() || got < least-3*48 {
		t.Errorf("%d records were read for %d uses", got, least)
	}
}
