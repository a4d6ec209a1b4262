package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestOptions holds that a command's help shows the usual flags alone and says where the others are, and that none is lost.
func TestOptions(t *testing.T) {
	var out, help strings.Builder
	if code := run(t.Context(), []string{"options"}, streams{out: &out, err: &out}); code != exitOK {
		t.Fatalf("options ended with %d: %s", code, &out)
	}
	root, _ := newRoot(streams{out: &help, err: &help})
	root.SetArgs([]string{"ingest", "--help"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--model", "--data", `"lector options"`} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("help says nothing of %s:\n%s", want, &help)
		}
	}
	if strings.Contains(help.String(), "--salt") {
		t.Errorf("help lists flags of every command:\n%s", &help)
	}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(out.String(), "--"+f.Name+" ") {
			t.Errorf("options does not list --%s", f.Name)
		}
		if f.Hidden {
			t.Errorf("--%s stays hidden after a help, so that no shell completes it", f.Name)
		}
	})
}
