package msl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lector/metal/msl"
)

func rewrite(t *testing.T, source string) *msl.Unit {
	t.Helper()
	u, err := msl.Rewrite(source)
	if err != nil {
		t.Fatalf("rewrite %q: %v", source, err)
	}
	return u
}

func TestKernels(t *testing.T) {
	u := rewrite(t, `
kernel void zeta(device float *x [[buffer(2)]], constant Params &p [[buffer(5)]], threadgroup half *s [[threadgroup(1)]],
                 const device uchar *w, uint3 g [[threadgroup_position_in_grid]], ushort lane [[thread_index_in_simdgroup]],
                 device float *mask [[buffer(9), function_constant(masked)]]) { x[0] = 1; }
[[max_total_threads_per_threadgroup(96)]] [[kernel]] void alpha(device uint a[4] [[buffer(0)]]) {}
`)
	want := []msl.Kernel{
		{Name: "alpha", Call: "alpha", MaxThreads: 96, Arguments: []msl.Argument{
			{Name: "a", Type: "device uint *", Kind: msl.KindBuffer}}},
		{Name: "zeta", Call: "zeta", Arguments: []msl.Argument{
			{Name: "x", Type: "device float *", Kind: msl.KindBuffer, Index: 2},
			{Name: "p", Type: "constant Params &", Kind: msl.KindReference, Index: 5, Const: true},
			{Name: "s", Type: "threadgroup half *", Kind: msl.KindThreadgroup, Index: 1},
			{Name: "w", Type: "const device uchar *", Kind: msl.KindBuffer, Index: 6, Const: true},
			{Name: "g", Type: "uint3", Kind: msl.KindBuiltin, Builtin: "group_position"},
			{Name: "lane", Type: "ushort", Kind: msl.KindBuiltin, Builtin: "lane"},
			{Name: "mask", Type: "device float *", Kind: msl.KindBuffer, Index: 9, Optional: true}}},
	}
	if d := cmp.Diff(want, u.Kernels); d != "" {
		t.Errorf("kernels (-want +got):\n%s", d)
	}
}

// A kernel starts early where its own body says from where on it needs its inputs, a template's with all its instances.
func TestStartsEarly(t *testing.T) {
	u := rewrite(t, `
kernel void late(device uint *a [[buffer(0)]]) { a[0] = 1; } // inputs_ready(0)
kernel void soon(device uint *a [[buffer(0)]]) { if (a) { inputs_ready(0); } a[0] = 1; }
template <int N> kernel void many(device uint *a [[buffer(0)]]) { inputs_ready(0); a[0] = N; }
template [[host_name("many_2")]] [[kernel]] decltype(many<2>) many<2>;
`)
	got := map[string]bool{}
	for _, k := range u.Kernels {
		got[k.Name] = k.Early
	}
	if d := cmp.Diff(map[string]bool{"late": false, "soon": true, "many_2": true}, got); d != "" {
		t.Errorf("early (-want +got):\n%s", d)
	}
}

func TestTemplates(t *testing.T) {
	u := rewrite(t, `
template <typename T, int N> kernel void gemm(device T *x [[buffer(0)]]) { x.template get<N>(); }
template [[host_name("gemm_half_4")]] [[kernel]] decltype(gemm<half, 4>) gemm<half, 4>;
template [[host_name("gemm_float")]] kernel void gemm<float,
  8>(device float *);
`)
	var got []string
	for _, k := range u.Kernels {
		got = append(got, k.Name+" = "+strings.Join(strings.Fields(k.Call), " "))
	}
	if d := cmp.Diff([]string{"gemm_float = gemm<float, 8>", "gemm_half_4 = gemm<half, 4>"}, got); d != "" {
		t.Errorf("kernels (-want +got):\n%s", d)
	}
	if strings.Contains(u.Body, "host_name") || !strings.Contains(u.Body, "x.template get<N>()") {
		t.Errorf("body: %s", u.Body)
	}
}

func TestConstants(t *testing.T) {
	u := rewrite(t, `constant bool masked [[function_constant(0)]];
constant uint mode [[function_constant(7)]];
constant bool both = masked && mode > 1u;
constant float table[2] = {1.0, 2.0};
void f(S s) { if (both) g(mode, s.mode, T::mode, is_function_constant_defined(mode)); }
`)
	if d := cmp.Diff([]msl.Constant{{Name: "masked", Type: "bool"}, {Name: "mode", Type: "uint", Index: 7}}, u.Constants); d != "" {
		t.Errorf("constants (-want +got):\n%s", d)
	}
	want := `MSL_CONSTANT(bool, msl_constant_masked, 0)
MSL_CONSTANT(uint, msl_constant_mode, 7)
MSL_DERIVED(bool, msl_constant_both) { return ( msl_constant_masked() && msl_constant_mode() > 1u); }
constant float table[2] = {1.0f, 2.0f};
void f(S s) { if (msl_constant_both()) g(msl_constant_mode(), s.mode, T::mode, MSL_CONSTANT_DEFINED(7)); }`
	if d := cmp.Diff(want, u.Body); d != "" {
		t.Errorf("body (-want +got):\n%s", d)
	}
}

func TestThreadgroupArrays(t *testing.T) {
	u := rewrite(t, `kernel void a() { threadgroup float x[4][N], y[2]; threadgroup vec<float, 4> v; threadgroup float *p = x[0]; }
kernel void b() { if (i) { threadgroup S s; } }`)
	want := `kernel void a() { MSL_THREADGROUP_ARRAY(0,x,(float),[4][N]); MSL_THREADGROUP_ARRAY(1,y,(float),[2]); MSL_THREADGROUP_VALUE(2,v,(vec<float, 4>)); threadgroup float *p = x[0]; }
kernel void b() { if (i) { MSL_THREADGROUP_VALUE(0,s,(S)); } }`
	if got := strings.ReplaceAll(u.Body, "  MSL", " MSL"); got != want {
		t.Errorf("body:\n%s\nwant:\n%s", got, want)
	}
}

func TestLiterals(t *testing.T) {
	for source, want := range map[string]string{
		"x = 1.0;": "x = 1.0f;", "x = 1e-5;": "x = 1e-5f;", "x = .5;": "x = .5f;", "x = 2.0f;": "x = 2.0f;", "x = 0x1F;": "x = 0x1F;",
		"x = 7;": "x = 7;", "x = 7u;": "x = 7u;", "x = 2.5h;": "x = ((half)2.5f);", "x = 1h;": "x = ((half)1.0f);",
		`s = "1.0";`: `s = "1.0";`, "a[b[1]] = 3.0;": "a[b[1]] = 3.0f;", "f [[maybe_unused]] = 1;": "f = 1;", "a->mode;": "a->mode;",
	} {
		if got := rewrite(t, source).Body; strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("%q became %q, want %q", source, got, want)
		}
	}
}

// What follows a rewritten part keeps its line.
func TestLinesSurvive(t *testing.T) {
	source := `constant
 bool c [[
  function_constant(0)]];
kernel void k(device float *x
   [[buffer(0)]],
   uint i [[thread_position_in_grid]])
{
  threadgroup float a[3
     + 4],
     b[2];
  HERE
}
template [[host_name("z")]]
  [[kernel]] decltype(k) k;
HERE
`
	body := rewrite(t, source).Body
	lines := func(s string) (at []int) {
		for i, l := range strings.Split(s, "\n") {
			if strings.Contains(l, "HERE") {
				at = append(at, i+1)
			}
		}
		return at
	}
	if d := cmp.Diff(lines(source), lines(body)); d != "" {
		t.Errorf("lines (-want +got):\n%s\n%s", d, body)
	}
}

func TestErrors(t *testing.T) {
	for source, want := range map[string]string{
		"# 12 \"gemm.metal\"\n\nkernel int k() {}":                                      "gemm.metal:13: a kernel begins with void",
		"kernel void k(float x) {}":                                                     "line 1: parameter x",
		"kernel void k(device float *x [[buffer(31)]]) {}":                              "index 31",
		"kernel void k(device float *x [[buffer(n)]]) {}":                               "needs a number",
		"kernel void k(device float x [[buffer(1)]]) {}":                                "neither a pointer nor a reference",
		"kernel void k(uint q [[thread_index_in_quadgroup]]) {}":                        "nor a known attribute",
		"kernel void k() {}\nkernel void k() {}":                                        `two kernels are named "k"`,
		"template [[host_name(\"a\")]] [[kernel]] decltype(f<1>) f<1>;":                 "no kernel template",
		"kernel void k(): {} template [[host_name(\"a b\")]] [[kernel]] decltype(k) k;": "no identifier",
		"constant half h [[function_constant(1)]];":                                     "must be a bool, int, uint or float",
		"constant bool h [[function_constant(64)]];":                                    "below 64",
		"int x [[a":                            "does not end",
		"kernel void k() { " + many(33) + " }": "more than 32 threadgroup arrays",
	} {
		if u, err := msl.Rewrite(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want an error with %q, got %v, %v", source, want, u, err)
		}
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "threadgroup float a%d[1]; ", i)
	}
	return b.String()
}

func TestLaunchers(t *testing.T) {
	u := rewrite(t, `kernel void k(device float *x [[buffer(2)]], constant P &p [[buffer(5)]], threadgroup half *s [[threadgroup(1)]],
 uint3 g [[threadgroup_position_in_grid]], uint w [[threads_per_simdgroup]]) {}`)
	cpu := msl.CPULaunchers(u)
	for _, part := range []string{"mslk_k(", "pointer_to{a->buffer[2]}", "reference_to{a->buffer[5], a->length[5], 5}",
		"pointer_to{a->threadgroup_memory[1]}", "position{(const uint *)&t->group_position}", "32u"} {
		if !strings.Contains(cpu, part) {
			t.Errorf("the launcher lacks %q: %s", part, cpu)
		}
	}
	if check := msl.CheckLaunchers(u); !strings.Contains(check, "k(::metal::impl::any_pointer{}, ::metal::impl::any_reference{}") {
		t.Errorf("the check: %s", check)
	}
}

// Any text gives a unit or an error, and no panic.
func FuzzRewrite(f *testing.F) {
	for _, s := range []string{
		"", "[[", "]]", "kernel", "template", "template <", "constant", "constant bool a [[function_constant(0)]];", "threadgroup",
		"kernel void k(device float *x [[buffer(0)]]) { threadgroup float a[2], b; a[b[0]] = 1.0h; }",
		"template <int N> kernel void k() {} template [[host_name(\"x\")]] [[kernel]] decltype(k<1>) k<1>;",
		"constant bool a [[function_constant(0)]]; constant int b = a ? 1 : 2; int c = is_function_constant_defined(a);",
		"# 3 \"x\"\n\"\\", "[[a, , b]] kernel void", "{ threadgroup a b, ; }", "'", "1.e+", "constant = ; constant a b = c;",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		u, err := msl.Rewrite(source)
		if err == nil && u == nil {
			t.Error("neither a unit nor an error")
		}
		if err == nil {
			msl.CPULaunchers(u)
			msl.CheckLaunchers(u)
		}
	})
}
