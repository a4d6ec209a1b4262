package msl

import (
	"fmt"
	"slices"
	"strings"
)

// rewriter walks the tokens once and writes the body.
type rewriter struct {
	ts        []token
	at        int
	unit      *Unit
	out       strings.Builder
	kernels   map[string]*parameters // by the name of the function
	bounds    map[string]int         // threads allowed by the kernel's attribute
	templated bool                   // a template header stands before what comes
	constants map[string]bool        // names that read function constants
	arrays    int                    // threadgroup arrays of the kernel so far
	depth     int                    // of braces
}

// Rewrite turns preprocessed source into C++ and lists what it has. Errors name file and line.
func Rewrite(source string) (*Unit, error) {
	r := &rewriter{ts: lex(source), unit: &Unit{}, kernels: map[string]*parameters{}, bounds: map[string]int{}, constants: map[string]bool{}}
	for r.at < len(r.ts) {
		if err := r.step(); err != nil {
			return nil, err
		}
	}
	u := r.unit
	slices.SortStableFunc(u.Kernels, func(a, b Kernel) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(u.Kernels); i++ {
		if u.Kernels[i].Name == u.Kernels[i-1].Name {
			return nil, fmt.Errorf("two kernels are named %q", u.Kernels[i].Name)
		}
	}
	u.Body = r.out.String()
	return u, nil
}

// step rewrites what begins at the current token.
func (r *rewriter) step() error {
	t := r.ts[r.at]
	switch {
	case t.text == "template" && !r.after(".", "->", "::", ">"):
		if r.peek(1) == "<" {
			r.templated = true
			r.emit(t)
			r.at++
			return nil
		}
		return r.instantiation()
	case t.text == "constant":
		if done, err := r.constant(); done || err != nil {
			return err
		}
	case r.beginsKernel():
		return r.kernel()
	case t.text == "[[":
		return r.dropAttribute()
	case t.text == "threadgroup" && r.depth > 0 && r.after(";", "{", "}", ")", ":"):
		if done, err := r.array(); done || err != nil {
			return err
		}
	case t.text == "is_function_constant_defined":
		return r.defined()
	}
	r.plain(t)
	return nil
}

// plain passes one token on.
func (r *rewriter) plain(t token) {
	switch t.text {
	case "{":
		r.depth++
		r.templated = false
	case "}":
		r.depth--
	case ";":
		r.templated = false
	}
	if isDigit(t.text[0]) || t.text[0] == '.' && len(t.text) > 1 {
		t.text = literal(t.text)
	}
	if r.constants[t.text] && !r.after(".", "->", "::") {
		t.text = accessor(t.text) + "()"
	}
	r.emit(t)
	r.at++
}

func (r *rewriter) emit(t token) {
	r.out.WriteString(t.space)
	r.out.WriteString(t.text)
}

// newlines writes the line ends of tokens that are dropped, so that what follows keeps its line.
func (r *rewriter) newlines(ts []token) {
	for _, t := range ts {
		r.out.WriteString(strings.Repeat("\n", strings.Count(t.space, "\n")))
	}
}

// peek is the text of the token n further on, or "".
func (r *rewriter) peek(n int) string {
	if r.at+n >= len(r.ts) {
		return ""
	}
	return r.ts[r.at+n].text
}

// after says whether the token before is one of these.
func (r *rewriter) after(texts ...string) bool {
	return r.at > 0 && slices.Contains(texts, r.ts[r.at-1].text)
}

func (r *rewriter) dropAttribute() error {
	end := closing(r.ts, r.at)
	if end < 0 {
		return fmt.Errorf("%s: an attribute does not end", r.ts[r.at].where())
	}
	r.newlines(r.ts[r.at : end+1])
	r.at = end + 1
	return nil
}

// beginsKernel says whether a kernel's head comes next: the word, or attributes and the word.
func (r *rewriter) beginsKernel() bool {
	for i := r.at; i >= 0 && i < len(r.ts); {
		switch r.ts[i].text {
		case "kernel":
			return true
		case "[[":
			if i+1 < len(r.ts) && r.ts[i+1].text == "kernel" {
				return true
			}
			i = closing(r.ts, i) + 1
			if i == 0 {
				return false
			}
		default:
			return false
		}
	}
	return false
}

// kernel rewrites the head of a kernel function, up to its closing parenthesis.
func (r *rewriter) kernel() error {
	first := r.ts[r.at]
	i, bound := r.at, 0
	for i < len(r.ts) && (r.ts[i].text == "kernel" || r.ts[i].text == "[[") {
		if r.ts[i].text == "kernel" {
			i++
			continue
		}
		end := closing(r.ts, i)
		if end < 0 {
			return fmt.Errorf("%s: an attribute does not end", r.ts[i].where())
		}
		for _, at := range commas(r.ts[i+1 : end]) {
			if len(at) == 0 || at[0].text != "max_total_threads_per_threadgroup" {
				continue
			}
			n, err := attributeNumber(at)
			if err != nil {
				return fmt.Errorf("%s: %w", at[0].where(), err)
			}
			bound = n
		}
		i = end + 1
	}
	if i+2 >= len(r.ts) || r.ts[i].text != "void" || !isName(r.ts[i+1].text) || r.ts[i+2].text != "(" {
		return fmt.Errorf("%s: a kernel begins with void, its name and its parameters", first.where())
	}
	name, end := r.ts[i+1].text, closing(r.ts, i+2)
	if end < 0 {
		return fmt.Errorf("%s: the parameters of %s do not end", first.where(), name)
	}
	p, err := parseParameters(r.ts[i+3 : end])
	if err != nil {
		return err
	}
	fmt.Fprintf(&r.out, "%skernel void %s(%s)", first.space, name, p.plain)
	r.newlines(r.missing(p.plain, r.ts[r.at+1:end+1]))
	p.early = r.startsEarly(end + 1)
	if !r.templated {
		r.unit.Kernels = append(r.unit.Kernels, Kernel{Name: name, Call: name, Arguments: p.arguments, MaxThreads: bound, Early: p.early})
	}
	r.kernels[name], r.bounds[name] = &p, bound
	r.templated, r.arrays, r.at = false, 0, end+1
	return nil
}

// startsEarly says that the body that begins at a token says by itself from where on it needs its inputs.
func (r *rewriter) startsEarly(at int) bool {
	end := closing(r.ts, at)
	return end > 0 && slices.ContainsFunc(r.ts[at:end], func(t token) bool { return t.text == "inputs_ready" })
}

// missing cuts from the front of dropped tokens as many line ends as the written text already has.
func (r *rewriter) missing(written string, dropped []token) []token {
	have := strings.Count(written, "\n")
	var rest []token
	for _, t := range dropped {
		n := strings.Count(t.space, "\n")
		keep := max(n-have, 0)
		have = max(have-n, 0)
		rest = append(rest, token{space: strings.Repeat("\n", keep)})
	}
	return rest
}

// instantiation reads template [[host_name("x")]] [[kernel]] decltype(f<A>) f<A>; and drops it: launchers
// instantiate by calling.
func (r *rewriter) instantiation() error {
	first := r.ts[r.at]
	end := find(r.ts, r.at, ";")
	if end < 0 {
		return fmt.Errorf("%s: an instantiation does not end", first.where())
	}
	attributes, rest, err := cutAttributes(r.ts[r.at+1 : end])
	if err != nil {
		return err
	}
	i := 0
	for i < len(rest) && r.kernels[rest[i].text] == nil {
		if rest[i].text == "decltype" && i+1 < len(rest) && rest[i+1].text == "(" {
			if i = closing(rest, i+1); i < 0 {
				return fmt.Errorf("%s: decltype does not end", first.where())
			}
		}
		i++
	}
	if i >= len(rest) {
		return fmt.Errorf("%s: no kernel template stands before %q", first.where(), text(rest))
	}
	function, arguments := rest[i].text, ""
	if i+1 < len(rest) && rest[i+1].text == "<" {
		if shut := closing(rest, i+1); shut > 0 {
			arguments = text(rest[i+1 : shut+1])
		}
	}
	name := function
	for _, at := range attributes {
		if len(at) == 4 && at[0].text == "host_name" {
			name = strings.Trim(at[2].text, `"`)
		}
	}
	if name == "" || strings.IndexFunc(name, func(c rune) bool { return c > 127 || !isWord(byte(c)) }) >= 0 {
		return fmt.Errorf("%s: the kernel name %q is no identifier", first.where(), name)
	}
	r.unit.Kernels = append(r.unit.Kernels, Kernel{Name: name, Call: function + strings.ReplaceAll(arguments, "\n", " "),
		Arguments: r.kernels[function].arguments, MaxThreads: r.bounds[function], Early: r.kernels[function].early})
	r.newlines(r.ts[r.at : end+1])
	r.at = end + 1
	return nil
}

// array rewrites a declaration of threadgroup arrays. It leaves pointers and references alone.
func (r *rewriter) array() (bool, error) {
	end := find(r.ts, r.at, ";")
	if end < 0 {
		return false, fmt.Errorf("%s: a declaration does not end", r.ts[r.at].where())
	}
	parts := commas(r.ts[r.at+1 : end])
	if len(parts) == 0 {
		return false, nil
	}
	first := parts[0]
	split := declarator(first)
	if split < 2 || slices.ContainsFunc(first[:split], func(t token) bool { return t.text == "*" || t.text == "&" }) {
		return false, nil
	}
	typ := text(first[:split-1])
	declare := func(name string, sizes []token) error {
		if r.arrays >= MaxArrays {
			return fmt.Errorf("%s: more than %d threadgroup arrays in one kernel", r.ts[r.at].where(), MaxArrays)
		}
		if len(sizes) > 0 {
			fmt.Fprintf(&r.out, " MSL_THREADGROUP_ARRAY(%d,%s,(%s),%s);", r.arrays, name, typ, strings.ReplaceAll(text(sizes), "\n", " "))
		} else {
			fmt.Fprintf(&r.out, " MSL_THREADGROUP_VALUE(%d,%s,(%s));", r.arrays, name, typ)
		}
		r.arrays++
		return nil
	}
	r.out.WriteString(r.ts[r.at].space)
	if err := declare(first[split-1].text, first[split:]); err != nil {
		return false, err
	}
	for _, p := range parts[1:] {
		if len(p) == 0 {
			return false, nil
		}
		if err := declare(p[0].text, p[1:]); err != nil {
			return false, err
		}
	}
	r.newlines(r.ts[r.at+1 : end+1])
	r.at = end + 1
	return true, nil
}

// declarator is where the name of a declaration has ended: at its sizes, its value or the end.
func declarator(ts []token) int {
	i := 0
	for i < len(ts) && ts[i].text != "[" && ts[i].text != "=" && ts[i].text != "(" {
		if ts[i].text == "<" {
			if end := closing(ts, i); end > 0 {
				i = end
			}
		}
		i++
	}
	return i
}
