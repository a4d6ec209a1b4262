package msl

import (
	"fmt"
	"strings"
)

// MaxConstants bounds the indices of function constants.
const MaxConstants = 64

// LauncherPrefix begins the names of the exported launchers of CPULaunchers.
const LauncherPrefix = "mslk_"

// CPULaunchers writes one exported C function a kernel, which binds its arguments from msl_args and
// msl_thread and calls it.
func CPULaunchers(u *Unit) string {
	var b strings.Builder
	b.WriteString("\n#line 1 \"launchers\"\n")
	for _, k := range u.Kernels {
		values := make([]string, len(k.Arguments))
		for i, a := range k.Arguments {
			values[i] = cpuValue(a)
		}
		fmt.Fprintf(&b, "extern \"C\" MSL_EXPORT void %s%s(const msl_args *a, const msl_thread *t) { %s(%s); }\n",
			LauncherPrefix, k.Name, k.Call, strings.Join(values, ", "))
	}
	return b.String()
}

func cpuValue(a Argument) string {
	switch a.Kind {
	case KindBuffer:
		return fmt.Sprintf("::metal::impl::pointer_to{a->buffer[%d]}", a.Index)
	case KindReference:
		return fmt.Sprintf("::metal::impl::reference_to{a->buffer[%d], a->length[%d], %d}", a.Index, a.Index, a.Index)
	case KindThreadgroup:
		return fmt.Sprintf("::metal::impl::pointer_to{a->threadgroup_memory[%d]}", a.Index)
	}
	if a.Builtin == "width" {
		return "32u"
	}
	return fmt.Sprintf("::metal::impl::position{(const uint *)&t->%s}", a.Builtin)
}

// CheckLaunchers writes functions that call each kernel with arguments in the right address spaces, so that
// a compiler which only checks sees every template.
func CheckLaunchers(u *Unit) string {
	var b strings.Builder
	b.WriteString("\n#line 1 \"launchers\"\n")
	for i, k := range u.Kernels {
		values := make([]string, len(k.Arguments))
		for j, a := range k.Arguments {
			values[j] = map[Kind]string{
				KindBuffer: "::metal::impl::any_pointer{}", KindThreadgroup: "::metal::impl::any_pointer{}",
				KindReference: "::metal::impl::any_reference{}", KindBuiltin: "::metal::impl::any_position{}",
			}[a.Kind]
		}
		fmt.Fprintf(&b, "void msl_use_%d() { %s(%s); }\n", i, k.Call, strings.Join(values, ", "))
	}
	return b.String()
}
