package worker

import "strings"

// stopText cuts generated text before the first stop string. Text that may still turn out to be the beginning of
// one is held back.
type stopText struct {
	stops []string
	held  string
	done  bool // a stop string was complete
}

// add takes a piece of text and returns what is certain; stopped says that a stop string is complete, and that
// nothing more will come.
func (s *stopText) add(piece string) (certain string, stopped bool) {
	s.held += piece
	cut := -1
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); i >= 0 && (cut < 0 || i < cut) {
			cut = i
		}
	}
	if cut >= 0 {
		certain, s.held, s.done = s.held[:cut], "", true
		return certain, true
	}
	keep := len(s.held) - s.pending()
	certain, s.held = s.held[:keep], s.held[keep:]
	return certain, false
}

// pending is the length of the longest end of the text that begins a stop string.
func (s *stopText) pending() int {
	longest := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > longest; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// rest is what was held back when no more text comes.
func (s *stopText) rest() string {
	out := s.held
	s.held = ""
	return out
}
