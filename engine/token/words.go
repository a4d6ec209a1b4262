package token

import (
	"strings"
	"sync"

	"lector/engine"
)

const (
	// longestWord in bytes is kept: longer pieces seldom come twice.
	longestWord = 32
	// wordBytes bounds each of the two generations, keys, ids and an estimate of the map's own cost included.
	wordBytes = 4 << 20
	entryCost = 64
)

// words remembers the ids of short pieces. When the young generation is full it becomes the old one, whose
// words are dropped unless they come again: what is in use stays, and the whole stays bounded.
type words struct {
	mu         sync.RWMutex
	young, old map[string][]engine.Token
	bytes      int // of young
}

// append appends the ids of word to out, and reports whether it knew them.
func (w *words) append(out []engine.Token, word string) ([]engine.Token, bool) {
	if len(word) > longestWord {
		return out, false
	}
	w.mu.RLock()
	ids, ok := w.young[word]
	fromOld := false
	if !ok {
		ids, ok = w.old[word]
		fromOld = ok
	}
	w.mu.RUnlock()
	if fromOld {
		w.keep(strings.Clone(word), ids)
	}
	return append(out, ids...), ok
}

// learn keeps a copy of the ids of word, if it is short.
func (w *words) learn(word string, ids []engine.Token) {
	if len(word) > longestWord {
		return
	}
	// The clone lets go of the document that the word is a part of.
	w.keep(strings.Clone(word), append([]engine.Token(nil), ids...))
}

func (w *words) keep(word string, ids []engine.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.young[word]; ok {
		return
	}
	if w.young == nil || w.bytes > wordBytes {
		w.old, w.young, w.bytes = w.young, make(map[string][]engine.Token), 0
	}
	w.young[word] = ids
	w.bytes += len(word) + 4*len(ids) + entryCost
}
