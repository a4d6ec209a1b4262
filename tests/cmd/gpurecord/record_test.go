package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

const testLog = `=== RUN   TestGood
--- PASS: TestGood (0.00s)
=== RUN   TestParts
=== RUN   TestParts/one
    x_test.go:3: wrong
--- FAIL: TestParts (0.01s)
    --- FAIL: TestParts/one (0.00s)
=== RUN   TestNoDevice
    x_test.go:9: no driver
--- SKIP: TestNoDevice (0.00s)
FAIL
`

func TestCount(t *testing.T) {
	o := &outcome{suite: suite{name: "a/b"}}
	last := o.count([]byte(testLog))
	if !slices.Equal(o.passed, []string{"TestGood"}) || !slices.Equal(o.failed, []string{"TestParts"}) ||
		!slices.Equal(o.reasons, []string{"TestNoDevice: x_test.go:9: no driver"}) || last != "FAIL" {
		t.Errorf("passed %q, failed %q, left out %q, last %q", o.passed, o.failed, o.reasons, last)
	}
	if o.ok() {
		t.Error("a failed test is no failure")
	}
}

// Every test is in one share, and what any share comes to is in the whole.
func TestShares(t *testing.T) {
	names := []string{"TestA", "TestB", "TestC", "TestD", "TestE"}
	for n := 1; n < 8; n++ {
		var all []string
		for _, share := range dealt(names, n) {
			if len(share) == 0 {
				t.Errorf("of %d shares one is empty", n)
			}
			all = append(all, share...)
		}
		if slices.Sort(all); !slices.Equal(all, names) {
			t.Errorf("%d shares have %q", n, all)
		}
	}
	good, bad := &outcome{}, &outcome{broke: errors.New("it hangs")}
	good.count([]byte("--- PASS: TestA (0.00s)\n"))
	bad.count([]byte(testLog))
	both := joined(suite{name: "a/b"}, []*outcome{good, bad}, 0)
	if !slices.Equal(both.passed, []string{"TestA", "TestGood"}) || !slices.Equal(both.failed, []string{"TestParts"}) || both.broke == nil || both.ok() {
		t.Errorf("together: %+v", both)
	}
}

func TestRecord(t *testing.T) {
	bad := &outcome{suite: suite{name: "a/b"}, tool: "/bin/checker --tool racecheck", broke: errors.New("it hangs")}
	bad.count([]byte(testLog))
	text := contents{"GPU", "abc", "580.1", []figure{{"copy", 4145.2, "GB/s", "1 GiB"}}, errors.New("no more memory"),
		[]check{{"one digest", nil, "100 runs"}, {"answers", errors.New("wrong"), ""}}, []*outcome{bad}}.String()
	for _, want := range []string{
		"# GPU, ", "commit: abc", "driver: 580.1", "| a/b | racecheck | 1 | 1 | 1 |", "a/b: TestParts failed",
		"left out TestNoDevice: x_test.go:9: no driver", "racecheck a/b: it hangs", "| copy | 4145 GB/s | 1 GiB |", "Measuring failed: no more memory",
		"| one digest | yes | 100 runs |", "| answers | no: wrong |  |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the record does not say %q:\n%s", want, text)
		}
	}
}

// The README's table is what the records say.
func TestTable(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	table, err := tableOf("../../records")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), tableBegins+table+tableEnds) {
		t.Errorf("the README says something else; go run ./tests/cmd/gpurecord table writes:\n%s", table)
	}
}

func TestRow(t *testing.T) {
	bad := &outcome{suite: suite{name: "a/b"}}
	bad.count([]byte(testLog))
	text := contents{"GPU", "abc", "580.1", []figure{{"product with halves, 4096 cubed", 44, "TFLOP/s", ""}, {"prefill of mid, experts resident", 17000, "tokens/s", ""}},
		nil, []check{{"a hundred prefills give one digest", nil, ""}, {"answers", errors.New("wrong"), ""}}, []*outcome{bad}}.String()
	row := rowOf("x.md", text)
	for _, want := range []string{"[GPU, ", "](tests/records/x.md)", "| 1 passed, 1 failed |", "| 1 of 2 hold |", "| 44 TFLOP/s |", "| 1.7e+04 tokens/s |", "| yes |"} {
		if !strings.Contains(row, want) {
			t.Errorf("the row does not say %q: %s", want, row)
		}
	}
}
