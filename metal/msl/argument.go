package msl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// builtins maps Metal's attributes to the fields of a thread's identity, in launchers' words.
func builtins() map[string]string {
	return map[string]string{
		"thread_position_in_grid":             "position_in_grid",
		"thread_position_in_threadgroup":      "position_in_group",
		"threadgroup_position_in_grid":        "group_position",
		"threadgroups_per_grid":               "groups",
		"threads_per_threadgroup":             "threads",
		"dispatch_threads_per_threadgroup":    "threads",
		"threads_per_grid":                    "grid",
		"grid_size":                           "grid",
		"thread_index_in_threadgroup":         "index",
		"simdgroup_index_in_threadgroup":      "simdgroup",
		"thread_index_in_simdgroup":           "lane",
		"simdgroups_per_threadgroup":          "simdgroups",
		"dispatch_simdgroups_per_threadgroup": "simdgroups",
		"threads_per_simdgroup":               "width",
		"thread_execution_width":              "width",
	}
}

// parameters is a kernel's parameter list, parsed, and as C++ without attributes.
type parameters struct {
	arguments []Argument
	early     bool // as Kernel.Early
	plain     string
}

// parseParameters reads what stands between a kernel's parentheses.
func parseParameters(ts []token) (parameters, error) {
	var p parameters
	var plain []string
	next := 0 // Metal numbers buffers without an attribute in order
	for _, part := range commas(ts) {
		if len(part) == 0 {
			return p, fmt.Errorf("%s: a parameter is missing in %q", ts[0].where(), text(ts))
		}
		attributes, rest, err := cutAttributes(part)
		if err != nil {
			return p, err
		}
		rest = decay(rest)
		if len(rest) < 2 || !isName(rest[len(rest)-1].text) {
			return p, fmt.Errorf("%s: cannot read the parameter %q", part[0].where(), text(part))
		}
		a, err := newArgument(rest, attributes, next)
		if err != nil {
			return p, fmt.Errorf("%s: parameter %s: %w", part[0].where(), rest[len(rest)-1].text, err)
		}
		if a.Kind == KindBuffer || a.Kind == KindReference {
			next = a.Index + 1
		}
		p.arguments = append(p.arguments, a)
		plain = append(plain, text(rest))
	}
	p.plain = strings.Join(plain, ", ")
	return p, nil
}

// cutAttributes parts a declaration from its attributes, each a list of tokens.
func cutAttributes(ts []token) (attributes [][]token, rest []token, err error) {
	for i := 0; i < len(ts); i++ {
		if ts[i].text != "[[" {
			rest = append(rest, ts[i])
			continue
		}
		end := closing(ts, i)
		if end < 0 {
			return nil, nil, fmt.Errorf("%s: an attribute does not end", ts[i].where())
		}
		attributes = append(attributes, commas(ts[i+1:end])...)
		i = end
	}
	return attributes, rest, nil
}

// decay turns "T name[n]" into "T *name".
func decay(ts []token) []token {
	for len(ts) > 3 && ts[len(ts)-1].text == "]" {
		k := len(ts) - 1
		for k > 0 && ts[k].text != "[" {
			k--
		}
		if k < 2 {
			return ts
		}
		name := ts[k-1]
		star := token{text: "*", space: name.space, file: name.file, line: name.line}
		ts = append(slices.Clone(ts[:k-1]), star, name)
	}
	return ts
}

// newArgument reads one parameter; next is its buffer index where no attribute gives one.
func newArgument(decl []token, attributes [][]token, next int) (Argument, error) {
	typ := decl[:len(decl)-1]
	a := Argument{Name: decl[len(decl)-1].text, Type: text(typ), Index: -1}
	space := ""
	for _, t := range typ {
		switch t.text {
		case "device", "constant", "threadgroup":
			space = t.text
		case "const":
			a.Const = true
		}
	}
	a.Const = a.Const || space == "constant"
	if err := a.attribute(attributes); err != nil {
		return a, err
	}
	switch last := typ[len(typ)-1].text; {
	case a.Kind == KindBuiltin:
		a.Index = 0
		return a, nil
	case space == "threadgroup":
		a.Kind, a.Index = KindThreadgroup, max(a.Index, 0)
	case space == "":
		return a, fmt.Errorf("it has neither an address space nor a known attribute")
	case last == "&":
		a.Kind = KindReference
	case last == "*":
		a.Kind = KindBuffer
	default:
		return a, fmt.Errorf("it is neither a pointer nor a reference")
	}
	if a.Index < 0 {
		a.Index = next
	}
	if a.Index >= MaxBindings {
		return a, fmt.Errorf("index %d is beyond %d", a.Index, MaxBindings-1)
	}
	return a, nil
}

// attribute takes what the attributes say.
func (a *Argument) attribute(attributes [][]token) error {
	known := builtins()
	for _, at := range attributes {
		if len(at) == 0 {
			continue
		}
		name := at[0].text
		field, builtin := known[name]
		switch {
		case builtin:
			a.Kind, a.Builtin = KindBuiltin, field
		case name == "buffer" || name == "threadgroup":
			n, err := attributeNumber(at)
			if err != nil {
				return err
			}
			a.Index = n
		case name == "function_constant":
			a.Optional = true
		}
	}
	return nil
}

// attributeNumber reads n of name(n).
func attributeNumber(at []token) (int, error) {
	if len(at) != 4 || at[1].text != "(" || at[3].text != ")" {
		return 0, fmt.Errorf("[[%s]] needs a number between parentheses", text(at))
	}
	n, err := strconv.ParseUint(strings.TrimRight(at[2].text, "uU"), 0, 16)
	if err != nil {
		return 0, fmt.Errorf("[[%s]] needs a number between parentheses", text(at))
	}
	return int(n), nil
}
