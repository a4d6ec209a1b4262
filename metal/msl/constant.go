package msl

import (
	"fmt"
	"slices"
	"strconv"
)

// accessor is the function that reads a function constant.
func accessor(name string) string { return "msl_constant_" + name }

// constant rewrites "constant T name [[function_constant(n)]];" and constants computed from such. Everything
// else in constant memory is left alone.
func (r *rewriter) constant() (bool, error) {
	if r.depth > 0 {
		return false, nil
	}
	first := r.ts[r.at]
	end := find(r.ts, r.at, ";", "{", "(")
	if end < 0 {
		return false, nil
	}
	decl := r.ts[r.at+1 : end]
	if at := find(decl, 0, "[["); at >= 2 && at+4 < len(r.ts)-r.at && decl[min(at+1, len(decl)-1)].text == "function_constant" {
		return true, r.functionConstant(at)
	}
	if eq := find(decl, 0, "="); eq >= 2 {
		stop := find(r.ts, r.at, ";")
		value := r.ts[r.at+1+eq+1 : max(stop, r.at+1+eq+1)]
		if stop > 0 && slices.ContainsFunc(value, func(t token) bool { return r.constants[t.text] }) {
			return true, r.derived(first, decl[:eq], stop)
		}
	}
	return false, nil
}

// functionConstant rewrites the declaration whose attribute begins at tokens further on.
func (r *rewriter) functionConstant(at int) error {
	first, ts := r.ts[r.at], r.ts[r.at+1:]
	shut := closing(ts, at)
	if shut < 0 || shut+1 >= len(ts) || ts[shut+1].text != ";" || shut-at != 5 {
		return fmt.Errorf("%s: a function constant is written constant T name [[function_constant(n)]];", first.where())
	}
	name, typ := ts[at-1].text, text(ts[:at-1])
	n, err := strconv.ParseUint(ts[at+3].text, 0, 16)
	if err != nil || n >= MaxConstants {
		return fmt.Errorf("%s: the index of function constant %s must be below %d", first.where(), name, MaxConstants)
	}
	if !slices.Contains([]string{"bool", "int", "uint", "float"}, typ) || !isName(name) {
		return fmt.Errorf("%s: function constant %s must be a bool, int, uint or float", first.where(), name)
	}
	fmt.Fprintf(&r.out, "%sMSL_CONSTANT(%s, %s, %d)", first.space, typ, accessor(name), n)
	r.newlines(ts[:shut+2])
	r.constants[name] = true
	r.unit.Constants = append(r.unit.Constants, Constant{Name: name, Type: typ, Index: int(n)})
	r.at += shut + 3
	return nil
}

// derived makes a function of a constant whose value reads function constants, since these are known only at
// the launch. The value's tokens are rewritten by the usual steps.
func (r *rewriter) derived(first token, decl []token, stop int) error {
	name, typ := decl[len(decl)-1].text, text(decl[:len(decl)-1])
	if !isName(name) {
		return fmt.Errorf("%s: cannot read the constant %q", first.where(), text(decl))
	}
	fmt.Fprintf(&r.out, "%sMSL_DERIVED(%s, %s) { return (", first.space, typ, accessor(name))
	r.at += len(decl) + 2
	for r.at < stop {
		if err := r.step(); err != nil {
			return err
		}
	}
	r.out.WriteString("); }")
	r.at = max(r.at, stop+1)
	r.constants[name] = true
	return nil
}

// defined rewrites is_function_constant_defined(name).
func (r *rewriter) defined() error {
	t := r.ts[r.at]
	name := r.peek(2)
	for _, c := range r.unit.Constants {
		if c.Name == name && r.peek(1) == "(" && r.peek(3) == ")" {
			fmt.Fprintf(&r.out, "%sMSL_CONSTANT_DEFINED(%d)", t.space, c.Index)
			r.newlines(r.ts[r.at+1 : r.at+4])
			r.at += 4
			return nil
		}
	}
	return fmt.Errorf("%s: is_function_constant_defined needs a function constant, not %q", t.where(), name)
}
