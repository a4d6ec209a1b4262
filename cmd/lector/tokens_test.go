package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeTokens writes a document of n token ids; a shorter one is the beginning of a longer one.
func writeTokens(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, (i*i+7*i)%300)
	}
	path := filepath.Join(t.TempDir(), "document")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
