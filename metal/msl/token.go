package msl

import (
	"fmt"
	"strconv"
	"strings"
)

// token is a word of the source with the white space before it.
type token struct {
	text  string
	space string
	file  string
	line  int
}

// where names the token's place for a message.
func (t token) where() string {
	if t.file == "" {
		return fmt.Sprintf("line %d", t.line)
	}
	return fmt.Sprintf("%s:%d", t.file, t.line)
}

// lexer cuts preprocessed source into tokens.
type lexer struct {
	src    string
	at     int
	file   string
	line   int
	space  strings.Builder
	fresh  bool // nothing but white space so far on this line
	nested []int
	out    []token
}

// lex cuts source into tokens. "[[" and "]]" are tokens only where they delimit an attribute: C++ allows two
// opening brackets in a row nowhere else.
func lex(src string) []token {
	l := &lexer{src: src, line: 1, fresh: true}
	for l.at < len(l.src) {
		l.next()
	}
	return l.out
}

func (l *lexer) next() {
	c := l.src[l.at]
	switch {
	case c == '\n':
		l.space.WriteByte('\n')
		l.line++
		l.at++
		l.fresh = true
		return
	case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v':
		l.space.WriteByte(c)
		l.at++
		return
	case c == '#' && l.fresh:
		l.directive()
	case c == '"' || c == '\'':
		l.emit(l.quoted(c))
	case isDigit(c) || c == '.' && l.at+1 < len(l.src) && isDigit(l.src[l.at+1]):
		l.emit(l.number())
	case isWord(c):
		l.emit(l.word())
	case c == '[' || c == ']':
		l.bracket(c)
	case strings.HasPrefix(l.src[l.at:], "::") || strings.HasPrefix(l.src[l.at:], "->"):
		l.emit(l.src[l.at : l.at+2])
	default:
		l.emit(l.src[l.at : l.at+1])
	}
	l.fresh = false
}

// emit adds a token that lies next in the source.
func (l *lexer) emit(text string) {
	l.out = append(l.out, token{text: text, space: l.space.String(), file: l.file, line: l.line})
	l.line += strings.Count(text, "\n")
	l.space.Reset()
	l.at += len(text)
}

// directive keeps a preprocessor line whole, and learns file and line from a line marker.
func (l *lexer) directive() {
	rest := l.src[l.at:]
	if i := strings.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i]
	}
	l.emit(rest)
	fields := strings.Fields(strings.TrimPrefix(rest, "#"))
	if len(fields) > 0 && fields[0] == "line" {
		fields = fields[1:]
	}
	if len(fields) < 2 {
		return
	}
	n, err := strconv.Atoi(fields[0])
	name, quoted := strings.CutPrefix(fields[1], `"`)
	if err != nil || !quoted {
		return
	}
	l.file, l.line = strings.TrimSuffix(name, `"`), n-1
}

func (l *lexer) quoted(quote byte) string {
	i := l.at + 1
	for i < len(l.src) && l.src[i] != quote && l.src[i] != '\n' {
		if l.src[i] == '\\' {
			i++
		}
		i++
	}
	return l.src[l.at:min(i+1, len(l.src))]
}

func (l *lexer) number() string {
	hex := strings.HasPrefix(l.src[l.at:], "0x") || strings.HasPrefix(l.src[l.at:], "0X")
	i := l.at
	for i < len(l.src) {
		c := l.src[i]
		exponent := !hex && i > l.at && (c == '+' || c == '-') && (l.src[i-1] == 'e' || l.src[i-1] == 'E')
		if !isWord(c) && c != '.' && !exponent {
			break
		}
		i++
	}
	return l.src[l.at:i]
}

func (l *lexer) word() string {
	i := l.at
	for i < len(l.src) && isWord(l.src[i]) {
		i++
	}
	return l.src[l.at:i]
}

// bracket tells attributes from subscripts: nested holds, for each open attribute, the subscripts open in it.
func (l *lexer) bracket(c byte) {
	double := l.at+1 < len(l.src) && l.src[l.at+1] == c
	inner := len(l.nested) - 1
	switch {
	case c == '[' && double:
		l.nested = append(l.nested, 0)
		l.emit("[[")
	case c == ']' && double && inner >= 0 && l.nested[inner] == 0:
		l.nested = l.nested[:inner]
		l.emit("]]")
	default:
		if inner >= 0 {
			l.nested[inner] += map[byte]int{'[': 1, ']': -1}[c]
		}
		l.emit(string(c))
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c)
}

// isName says whether a token's text is an identifier or a keyword.
func isName(s string) bool { return s != "" && isWord(s[0]) && !isDigit(s[0]) }

// literal gives a number Metal's type: there is no double, and h means half.
func literal(s string) string {
	if strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") {
		return s
	}
	body, last := s[:len(s)-1], s[len(s)-1]
	switch {
	case last == 'h' || last == 'H':
		if !strings.ContainsAny(body, ".eE") {
			body += ".0"
		}
		return "((half)" + body + "f)"
	case strings.ContainsAny(s, ".eE") && last != 'f' && last != 'F':
		return s + "f"
	}
	return s
}

// text joins tokens as they were written.
func text(ts []token) string {
	var b strings.Builder
	for i, t := range ts {
		if i > 0 {
			b.WriteString(t.space)
			if t.space == "" && isWord(t.text[0]) && isWord(ts[i-1].text[len(ts[i-1].text)-1]) {
				b.WriteByte(' ')
			}
		}
		b.WriteString(t.text)
	}
	return b.String()
}

// closing is the index of the token that closes the one at i, or -1.
func closing(ts []token, i int) int {
	open := ts[i].text
	shut := map[string]string{"(": ")", "[": "]", "{": "}", "<": ">", "[[": "]]"}[open]
	depth := 0
	for j := i; j < len(ts); j++ {
		switch ts[j].text {
		case open:
			depth++
		case shut:
			depth--
			if depth == 0 {
				return j
			}
		case ";":
			if open == "<" {
				return -1
			}
		}
	}
	return -1
}

// commas splits tokens at the commas outside of all brackets. "<" counts as one: inside of declarations it
// opens template arguments.
func commas(ts []token) [][]token {
	var parts [][]token
	depth, start := 0, 0
	for i, t := range ts {
		switch t.text {
		case "(", "[", "{", "<", "[[":
			depth++
		case ")", "]", "}", ">", "]]":
			depth--
		case ",":
			if depth == 0 {
				parts = append(parts, ts[start:i])
				start = i + 1
			}
		}
	}
	if start < len(ts) {
		parts = append(parts, ts[start:])
	}
	return parts
}

// find is the index of the first token from i on whose text is one of stops, or -1.
func find(ts []token, i int, stops ...string) int {
	for ; i < len(ts); i++ {
		for _, s := range stops {
			if ts[i].text == s {
				return i
			}
		}
	}
	return -1
}
