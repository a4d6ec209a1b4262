// Package params reads the headers that declare the parameter blocks of the kernels, and writes the Go side of them.
//
// A header is C that the shader compiler sees as it is, in a small dialect, so that both sides can only have one layout:
//
//   - `struct Name {`, one field a line with a comment, `};`
//   - fields of uint32_t, int32_t and float, or arrays of them with a literal length: every member is 4 bytes, so there
//     are no holes and no padding in any compiler
//   - `#define NAME number` for buffer indices and other constants that both sides use
//   - `//` comments, blank lines and one #pragma once
//
// Anything else is refused with its line. The package keeps no state.
package params

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Header is what a header declares, in its order.
type Header struct {
	Name    string // of the file, in messages and in the generated code
	Structs []Struct
	Consts  []Const
}

// Struct is a parameter block.
type Struct struct {
	Name   string
	Doc    []string // comment lines above it, without the slashes
	Fields []Field
}

// Field is a member of 4 bytes, or an array of them.
type Field struct {
	Name  string // as in C
	Type  string // uint32_t, int32_t or float
	Count int    // 0: no array
	Doc   string
}

// Const is a number that both sides use.
type Const struct {
	Name  string // as in C
	Value int
	Doc   []string // comment lines above it, then the one beside it
}

// Bytes is the size of the block.
func (s Struct) Bytes() int {
	n := 0
	for _, f := range s.Fields {
		n += f.Bytes()
	}
	return n
}

// Bytes is the size of the field.
func (f Field) Bytes() int { return 4 * max(1, f.Count) }

// parser holds what a line may refer to. Patterns are compiled once a header.
type parser struct {
	field, define *regexp.Regexp
	out           *Header
	open          *Struct
	doc           []string
}

// Parse reads a header; an error names the line that is not of the dialect.
func Parse(name, text string) (*Header, error) {
	p := &parser{
		field:  regexp.MustCompile(`^(uint32_t|int32_t|float)\s+([a-z][a-z0-9_]*)(?:\[(\d+)\])?;\s*(?://\s*(.*))?$`),
		define: regexp.MustCompile(`^#define\s+([A-Z][A-Z0-9_]*)\s+(\d+)\s*(?://\s*(.*))?$`),
		out:    &Header{Name: name},
	}
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(strings.TrimSpace(line)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
	}
	if p.open != nil {
		return nil, fmt.Errorf("%s: struct %s is not closed", name, p.open.Name)
	}
	return p.out, nil
}

func (p *parser) line(s string) error {
	switch {
	case p.open != nil:
		return p.member(s)
	case strings.HasPrefix(s, "//"):
		p.doc = append(p.doc, strings.TrimSpace(strings.TrimPrefix(s, "//")))
		return nil
	case s == "" || s == "#pragma once":
		p.doc = nil
		return nil
	case strings.HasPrefix(s, "struct ") && strings.HasSuffix(s, "{"):
		p.open = &Struct{Name: strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(s, "struct "), "{")), Doc: p.doc}
		p.doc = nil
		return nil
	}
	m := p.define.FindStringSubmatch(s)
	if m == nil {
		return fmt.Errorf("%q is no struct, no #define of a number and no comment", s)
	}
	value, err := strconv.Atoi(m[2])
	if err != nil {
		return fmt.Errorf("read %s: %w", m[1], err)
	}
	c := Const{Name: m[1], Value: value, Doc: p.doc}
	if m[3] != "" {
		c.Doc = append(c.Doc[:len(c.Doc):len(c.Doc)], m[3])
	}
	p.out.Consts, p.doc = append(p.out.Consts, c), nil
	return nil
}

func (p *parser) member(s string) error {
	if s == "" || strings.HasPrefix(s, "//") {
		return nil
	}
	if s == "};" {
		if len(p.open.Fields) == 0 {
			return fmt.Errorf("struct %s has no fields", p.open.Name)
		}
		p.out.Structs, p.open = append(p.out.Structs, *p.open), nil
		return nil
	}
	m := p.field.FindStringSubmatch(s)
	if m == nil {
		return fmt.Errorf("%q is no field of uint32_t, int32_t or float", s)
	}
	f := Field{Type: m[1], Name: m[2], Doc: m[4]}
	if m[3] != "" {
		n, err := strconv.Atoi(m[3])
		if err != nil || n == 0 {
			return fmt.Errorf("field %s has %s elements", f.Name, m[3])
		}
		f.Count = n
	}
	p.open.Fields = append(p.open.Fields, f)
	return nil
}
