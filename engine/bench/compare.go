package bench

import "fmt"

// Delta is how one setting went in two reports.
type Delta struct {
	Name     string
	Unit     string
	A, B     float64 // medians
	Speed    float64 // how many times as fast B is: above 1 is better, whatever the unit
	Overlaps bool    // the samples' ranges overlap: the difference may be noise
}

// Comparison is two reports side by side.
type Comparison struct {
	Deltas []Delta
	OnlyA  []string // rows that the other report lacks
	OnlyB  []string
	Notes  []string // what differs besides: such figures compare two things at once
}

// Compare matches the rows of two reports by name.
func Compare(a, b Report) Comparison {
	c := Comparison{Notes: differences(a, b)}
	rows := map[string]Row{}
	for _, r := range b.Rows {
		rows[r.Name] = r
	}
	for _, r := range a.Rows {
		other, ok := rows[r.Name]
		if !ok || other.Unit != r.Unit {
			c.OnlyA = append(c.OnlyA, r.Name)
			continue
		}
		delete(rows, r.Name)
		c.Deltas = append(c.Deltas, r.delta(other))
	}
	for _, r := range b.Rows {
		if _, left := rows[r.Name]; left {
			c.OnlyB = append(c.OnlyB, r.Name)
		}
	}
	return c
}

func (r Row) delta(b Row) Delta {
	d := Delta{Name: r.Name, Unit: r.Unit, A: r.Median(), B: b.Median()}
	over, under := d.B, d.A
	if r.Unit == Seconds {
		over, under = d.A, d.B
	}
	if under > 0 {
		d.Speed = over / under
	}
	lowA, highA := r.Range()
	lowB, highB := b.Range()
	d.Overlaps = lowA <= highB && lowB <= highA
	return d
}

// differences names what else the two reports differ in.
func differences(a, b Report) []string {
	var notes []string
	for _, f := range []struct{ what, a, b string }{
		{"kind", a.Kind, b.Kind}, {"CPU", a.Host.CPU, b.Host.CPU}, {"device", a.Host.Device, b.Host.Device}, {"cores", fmt.Sprint(a.Host.Cores), fmt.Sprint(b.Host.Cores)},
		{"workers", fmt.Sprint(a.Ceiling.Workers), fmt.Sprint(b.Ceiling.Workers)},
		{"weights", a.Model.Digest, b.Model.Digest}, {"class", a.Model.Class, b.Model.Class}, {"Go", a.Host.Go, b.Host.Go},
		{"commit", a.Host.Commit, b.Host.Commit}, {"text", a.Text, b.Text}, {"state", a.State, b.State},
		{"seed", fmt.Sprint(a.Seed), fmt.Sprint(b.Seed)},
	} {
		if f.a != f.b {
			notes = append(notes, fmt.Sprintf("%s: %s and %s", f.what, orNone(f.a), orNone(f.b)))
		}
	}
	if x, y := a.Ceiling.FLOPs(), b.Ceiling.FLOPs(); x > 0 && y > 0 && (x > 1.1*y || y > 1.1*x) {
		notes = append(notes, fmt.Sprintf("ceiling: %.1f and %.1f GFLOP/s: the machine was not the same", x/1e9, y/1e9))
	}
	return notes
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
