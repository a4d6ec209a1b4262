// Package demo holds the document that `lector demo` reads and the questions it asks afterwards: prose
// of Newton's Opticks with twelve invented facts strewn in, of the six kinds that the nano model has
// learnt to find. README.md says where the prose comes from and how it was cut.
//
// What it promises:
//
//  1. The document is valid UTF-8 in NFC and does not end in a newline.
//  2. Every question has one answer, stated by one sentence of the document; two questions of each kind.
//  3. Prompt is the form of question that nano knows, and goes directly after the document.
//
// It refuses nothing and keeps no state; any goroutine may call it. Start reading at Questions.
package demo

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed document.txt
var document string

// Question asks for one fact of the document.
type Question struct {
	Prompt string // what to resume with, from the blank line before it to "Answer:"
	Want   string // the text that a right answer begins with, from its space to its full stop
	Kind   string // of fact, such as "access code"
	Place  string // the fact is about it
}

// Right says whether text, generated after Prompt, is the answer: it begins with Want, however many spaces
// stand before it.
func (q Question) Right(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " "), strings.TrimLeft(q.Want, " "))
}

// Document is the text to read: 6,069 of nano's tokens. It is the file document.txt as it is, so that
// ingesting the file gives the same state.
func Document() string { return document }

// Questions lists the questions in the order in which the document states the facts.
func Questions() []Question {
	facts := []struct{ kind, place, value string }{
		{"access code", "Amber Lighthouse", "48213"},
		{"keeper", "Cobalt Harbor", "Alice Fletcher"},
		{"cargo", "Silver Wharf", "cinnamon"},
		{"color", "Misty Windmill", "crimson"},
		{"call sign", "Northern Outpost", "KD-47"},
		{"founding year", "Granite Abbey", "1687"},
		{"access code", "Amber Foundry", "07396"},
		{"cargo", "Quiet Ferry", "beeswax"},
		{"keeper", "Cobalt Station", "Simon Osborn"},
		{"color", "Upper Mill", "teal"},
		{"founding year", "Hidden Observatory", "1742"},
		{"call sign", "Winter Beacon", "RT-08"},
	}
	questions := make([]Question, len(facts))
	for i, f := range facts {
		questions[i] = Question{
			Prompt: fmt.Sprintf("\n\nQuestion: What is the %s of %s?\nAnswer:", f.kind, f.place),
			Want:   " " + f.value + ".",
			Kind:   f.kind,
			Place:  f.place,
		}
	}
	return questions
}
