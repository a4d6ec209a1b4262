// Package streamtest stands between a stream.Store and its files: it counts reads, and makes them fail by rules that
// are data.
//
// It promises that a rule hits the reads that it names and no others, whatever goroutine makes them. It refuses
// nothing: a rule for a file that is never read has no effect. A Disk may be used from any goroutine. Start reading at
// Disk.
package streamtest

import (
	"io"
	"sync"
	"time"
)

// Rule makes some reads of one file misbehave.
type Rule struct {
	File  string // base name
	First int    // number of the first read that it hits, from 1
	Times int    // how many it hits; 0: all from then on
	// What happens, in this order.
	Delay time.Duration // before the read
	Do    func()        // before the read
	Err   error         // instead of the read
	Short int           // so many bytes fewer come, with io.ErrUnexpectedEOF
	Flip  bool          // the first bit of what comes is inverted
}

func (r *Rule) hits(file string, n int) bool {
	return r.File == file && n >= r.First && (r.Times == 0 || n < r.First+r.Times)
}

// Read is one read that was made.
type Read struct {
	File   string
	Offset int64
	Bytes  int
}

// Disk is the rules and what was read. The zero value only counts.
type Disk struct {
	mu    sync.Mutex
	rules []Rule
	count map[string]int
	reads []Read
}

// Set replaces the rules and forgets what was read.
func (d *Disk) Set(rules ...Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rules, d.count, d.reads = rules, map[string]int{}, nil
}

// Reads lists the reads of a file since Set, in the order in which they were asked for.
func (d *Disk) Reads(file string) []Read {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Read
	for _, r := range d.reads {
		if r.File == file {
			list = append(list, r)
		}
	}
	return list
}

// Wrap is for stream.Options.
func (d *Disk) Wrap(file string, r io.ReaderAt) io.ReaderAt { return &reader{d, file, r} }

type reader struct {
	disk *Disk
	file string
	next io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (r *reader) ReadAt(p []byte, off int64) (int, error) {
	rules := r.disk.note(r.file, Read{r.file, off, len(p)})
	for _, rule := range rules {
		time.Sleep(rule.Delay)
		if rule.Do != nil {
			rule.Do()
		}
		if rule.Err != nil {
			return 0, rule.Err
		}
	}
	n, err := r.next.ReadAt(p, off)
	for _, rule := range rules {
		if rule.Flip && n > 0 {
			p[0] ^= 1
		}
		if rule.Short > 0 {
			n, err = max(0, n-rule.Short), io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// note counts a read and returns the rules that hit it.
func (d *Disk) note(file string, r Read) []Rule {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count = map[string]int{}
	}
	d.count[file]++
	d.reads = append(d.reads, r)
	var list []Rule
	for _, rule := range d.rules {
		if rule.hits(file, d.count[file]) {
			list = append(list, rule)
		}
	}
	return list
}
