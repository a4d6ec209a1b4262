package params_test

import (
	"strings"
	"testing"

	"lector/shaders/params"
)

const sample = `// A header.
#pragma once

// SAMPLE_Y is where the result goes.
#define SAMPLE_Y 1 // [T]

// What a sample takes.
struct SampleParams {
  uint32_t row_floats; // from one row to the next
  // a remark
  int32_t shift[3];
  float eps;
};
`

func TestParse(t *testing.T) {
	h, err := params.Parse("sample.h", sample)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Structs) != 1 || h.Structs[0].Bytes() != 20 || len(h.Structs[0].Fields) != 3 || h.Structs[0].Fields[1].Count != 3 {
		t.Errorf("structs %+v", h.Structs)
	}
	if len(h.Consts) != 1 || h.Consts[0].Name != "SAMPLE_Y" || h.Consts[0].Value != 1 {
		t.Errorf("constants %+v", h.Consts)
	}
}

func TestGo(t *testing.T) {
	h, err := params.Parse("sample.h", sample)
	if err != nil {
		t.Fatal(err)
	}
	text, err := h.Go("sample", "sample")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"package sample", "const SampleY = 1", "structs.HostLayout", "RowFloats uint32", "Shift     [3]int32", "Eps       float32",
		`static_assert(sizeof(SampleParams) == 20`, "func sampleStructs() []any", "DO NOT EDIT",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("generated code lacks %q:\n%s", want, text)
		}
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"struct A {\n  float3 x;\n};":                  `h:2: "float3 x;"`,
		"struct A {\n  uint64_t x;\n};":                `h:2: "uint64_t x;"`,
		"struct A {\n  bool x;\n};":                    `h:2: "bool x;"`,
		"struct A {\n  float *x;\n};":                  "h:2:",
		"struct A {\n  float x, y;\n};":                "h:2:",
		"struct A {\n  float x[0];\n};":                "0 elements",
		"struct A {\n};":                               "no fields",
		"struct A {\n  float x;\n":                     "not closed",
		"typedef int x;":                               "h:1:",
		"#define A (1+2)":                              "h:1:",
		"#define A 99999999999999999999":               "read A",
		"struct A {\n  float x[99999999999999999999];": "elements",
	} {
		if _, err := params.Parse("h", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}

// Whatever a header is, reading it ends in a header or an error, and what was read generates Go that formats.
func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add("struct A {\n  float type[2]; // x\n};\n#define B 3")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := params.Parse("fuzz.h", text)
		if err != nil {
			return
		}
		for _, s := range h.Structs {
			if s.Bytes()%4 != 0 || s.Bytes() == 0 {
				t.Errorf("struct %q has %d bytes", s.Name, s.Bytes())
			}
		}
		h.Asserts()
	})
}
