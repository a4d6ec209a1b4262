package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"lector/queue"
)

// fleet is what all workers said at one time.
type fleet struct {
	at      time.Time
	workers []queue.WorkerStatus
}

// text is the fleet for people, cut after a number of lines (0: not cut).
func (f fleet) text(lines int) string {
	if len(f.workers) == 0 {
		return "no worker answers: start one with lector worker\n"
	}
	var b strings.Builder
	jobs := 0
	for _, w := range f.workers {
		jobs += len(w.Jobs)
	}
	fmt.Fprintf(&b, "%s, %s at work, %s\n\n", counted(len(f.workers), "worker"), counted(jobs, "job"), f.waiting())
	f.table(&b, "HOST\tPROCESS\tMODEL\tCLASS\tUP\tJOBS\tENDED\tFAILED\tTOKENS\t", func(row func(...any)) {
		for _, w := range f.workers {
			model := plain(w.Name, 24)
			if w.Draining {
				model += " (drains)"
			}
			row(plain(w.Host, 24), w.Process, model, plain(w.Class, 20), span(f.at.Sub(w.Started)), len(w.Jobs), w.Ended, w.Failed, w.Tokens)
		}
	})
	f.section(&b, "AT WORK\tKIND\tNAME\tHOST\tATTEMPT\tFOR\tTOKENS\tDONE\t", func(w queue.WorkerStatus) []queue.WorkerJob { return w.Jobs },
		func(w queue.WorkerStatus, j queue.WorkerJob) []any {
			return []any{short(j.ID), j.Kind, plain(j.Name, 32), plain(w.Host, 24), j.Attempt, span(f.at.Sub(j.Since)), fmt.Sprintf("%d/%d", j.Tokens, j.Total), percent(j.Tokens, j.Total)}
		})
	f.section(&b, "ENDED\tKIND\tNAME\tHOST\tATTEMPT\tTOOK\tTOKENS\tAS\t", func(w queue.WorkerStatus) []queue.WorkerJob { return w.Recent },
		func(w queue.WorkerStatus, j queue.WorkerJob) []any {
			return []any{short(j.ID), j.Kind, plain(j.Name, 32), plain(w.Host, 24), j.Attempt, span(time.Duration(j.Seconds * float64(time.Second))), j.Tokens, plain(j.Class, 20)}
		})
	return cut(b.String(), lines)
}

func (f fleet) section(b *strings.Builder, head string, jobs func(queue.WorkerStatus) []queue.WorkerJob, cells func(queue.WorkerStatus, queue.WorkerJob) []any) {
	found := slices.ContainsFunc(f.workers, func(w queue.WorkerStatus) bool { return len(jobs(w)) > 0 })
	if !found {
		return
	}
	b.WriteByte('\n')
	f.table(b, head, func(row func(...any)) {
		for _, w := range f.workers {
			for _, j := range jobs(w) {
				row(cells(w, j)...)
			}
		}
	})
}

func (f fleet) table(b *strings.Builder, head string, fill func(row func(...any))) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	fill(func(cells ...any) {
		for _, c := range cells {
			fmt.Fprintf(t, "%v\t", c)
		}
		fmt.Fprintln(t)
	})
	_ = t.Flush() // a builder takes everything
}

// waiting says what waits in the queues of all models. Workers of one model say the same of their queue, at almost the
// same time: the largest count stands.
func (f fleet) waiting() string {
	type key struct {
		model, priority string
		kind            queue.Kind
	}
	largest := map[key]int{}
	for _, w := range f.workers {
		for _, d := range w.Depth {
			k := key{w.Model, d.Priority, d.Kind}
			largest[k] = max(largest[k], d.Waiting)
		}
	}
	byKind := map[queue.Kind]int{}
	for k, n := range largest {
		byKind[k.kind] += n
	}
	var parts []string
	for kind, n := range byKind {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if len(parts) == 0 {
		return "nothing waits"
	}
	slices.SortFunc(parts, func(a, b string) int {
		return cmp.Compare(a[strings.IndexByte(a, ' '):], b[strings.IndexByte(b, ' '):])
	})
	return strings.Join(parts, " and ") + " waiting"
}

func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// short is the beginning of a job's id.
func short(id string) string { return plain(id, 20) }

// plain keeps what another machine says from steering the terminal, and short.
func plain(s string, limit int) string {
	out := []rune{}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			r = '?'
		}
		out = append(out, r)
	}
	if len(out) > limit {
		out = append(out[:limit-1], '…')
	}
	if len(out) == 0 {
		return "-"
	}
	return string(out)
}

// percent is a part of a whole.
func percent(n, of int) string {
	if of <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d %%", 100*n/of)
}

// span is a time for people.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// cut leaves the first lines.
func cut(text string, lines int) string {
	if lines <= 0 || strings.Count(text, "\n") <= lines {
		return text
	}
	kept := strings.SplitAfterN(text, "\n", lines)
	return strings.Join(kept[:lines-1], "") + "...\n"
}
