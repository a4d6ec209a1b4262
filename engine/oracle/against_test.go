package oracle_test

import (
	"context"
	"testing"

	"lector/engine"
	"lector/engine/cpu"
	"lector/engine/oracle"
	"lector/engine/qwen4exp"
)

// An engine agrees with itself exactly, and one of another model does not pass for it.
func TestAgainst(t *testing.T) {
	tokens := make([]engine.Token, 60)
	for i := range tokens {
		tokens[i] = engine.Token(i * 7 % 300)
	}
	open := func(dir string) *qwen4exp.Engine {
		e, err := opener(t, modelOf(dir), cpu.Rounded)(qwen4exp.Grouped)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	same, err := oracle.Against(context.Background(), open("tiny"), open("tiny"), tokens, 1e-9)
	if err != nil || !same.OK() {
		t.Errorf("the same model: %+v, %v", same, err)
	}
	other, err := oracle.Against(context.Background(), open("tiny"), open("tiny-mlx-folded"), tokens, 1e-1)
	if err != nil || other.OK() {
		t.Errorf("another model passes: %v", err)
	}
}
