package ptx_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"lector/metal"
	"lector/metal/msl"
	"lector/metal/ptx"
)

const twoEntries = `.version 8.3
.extern .shared .align 16 .b8 msl_dynamic[];

.visible .entry mslk_one(
	.param .u64 a
)
{
	mov.b32 %r1, MSL_CONSTANT_1;
	mov.b32 %r2, MSL_CONSTANT_12;
	ret;

}

.visible .entry mslk_one_more(
)
{
	mov.b32 %r1, MSL_DEFINED_3;
	mov.b32 %r2, MSL_CONSTANT_3;
	ret;

}
`

func TestBounded(t *testing.T) {
	got := ptx.Bounded(twoEntries, []msl.Kernel{{Name: "one"}, {Name: "one_more", MaxThreads: 128}})
	want := strings.Replace(twoEntries, "mslk_one_more(\n)\n{", "mslk_one_more(\n)\n.maxntid 128, 1, 1\n.minnctapersm 7\n{", 1)
	if got != want || got == twoEntries {
		t.Errorf("with the bound of one kernel:\n%s", got)
	}
}

func TestSpecialised(t *testing.T) {
	declared := []msl.Constant{{Name: "flag", Type: "bool", Index: 1}, {Name: "factor", Type: "float", Index: 12}, {Name: "maybe", Type: "int", Index: 3}}
	for _, c := range []struct {
		kernel    string
		constants []metal.Constant
		has, lack []string
		err       string
	}{
		{kernel: "one", constants: []metal.Constant{{Index: 1, Value: true}, {Index: 12, Value: float32(0.5)}},
			has:  []string{"%r1, 1;", "%r2, " + strconv.Itoa(int(math.Float32bits(0.5))), "msl_dynamic"},
			lack: []string{"mslk_one_more", "MSL_"}},
		{kernel: "one_more", has: []string{"%r1, 0;", "%r2, 0;"}, lack: []string{"mslk_one(", "MSL_"}},
		{kernel: "one_more", constants: []metal.Constant{{Index: 3, Value: int32(-1)}, {Index: 40, Value: true}}, has: []string{"%r1, 1;", "%r2, 4294967295;"}},
		{kernel: "one", constants: []metal.Constant{{Index: 12, Value: float32(1)}}, err: "function constant 1 (flag) has no value"},
		{kernel: "one", constants: []metal.Constant{{Index: 1, Value: uint32(1)}}, err: "function constant 1 (flag) is a bool, and its value a uint32"},
		{kernel: "none", err: "no entry mslk_none"},
	} {
		text, err := ptx.Specialised(twoEntries, declared, c.kernel, c.constants)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %v: %v, want %q", c.kernel, c.constants, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s %v lacks %q:\n%s", c.kernel, c.constants, want, text)
			}
		}
		for _, bad := range c.lack {
			if strings.Contains(text, bad) {
				t.Errorf("%s %v has %q:\n%s", c.kernel, c.constants, bad, text)
			}
		}
	}
}
