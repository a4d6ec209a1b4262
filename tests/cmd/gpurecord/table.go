package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The README says what has run where, from the records alone: gpurecord table writes it, and a test holds it to them.
const (
	tableBegins = "<!-- made by: go run ./tests/cmd/gpurecord table -->\n"
	tableEnds   = "<!-- end -->\n"
)

// writeTable puts the table of all records into a README.
func writeTable(readme, records string) error {
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	table, err := tableOf(records)
	if err != nil {
		return err
	}
	begin, after, ok := strings.Cut(string(text), tableBegins)
	_, end, closed := strings.Cut(after, tableEnds)
	if !ok || !closed {
		return fmt.Errorf("write the table into %s: it has no lines %q and %q", readme, strings.TrimSpace(tableBegins), strings.TrimSpace(tableEnds))
	}
	return os.WriteFile(readme, []byte(begin+tableBegins+table+tableEnds+end), 0o644)
}

// tableOf is a row for each record, the newest first.
func tableOf(folder string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "2*.md"))
	if err != nil {
		return "", err
	}
	slices.Sort(files)
	slices.Reverse(files)
	var b strings.Builder
	b.WriteString("| record | tests | checks | product in halves | prefill of mid | one digest in a hundred runs |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		b.WriteString(rowOf(filepath.Base(path), string(text)))
	}
	return b.String(), nil
}

// rowOf reads one record; what it does not say stays empty.
func rowOf(name, text string) string {
	title, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	passed, failed, hold, claims := 0, 0, 0, 0
	var product, prefill, digest string
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		var p, f int
		switch {
		case len(cells) == 6 && scan(cells[2], &p) && scan(cells[3], &f):
			passed, failed = passed+p, failed+f
		case len(cells) == 3 && (cells[1] == "yes" || strings.HasPrefix(cells[1], "no")):
			claims++
			if cells[1] == "yes" {
				hold++
			}
			if strings.HasPrefix(cells[0], "a hundred prefills") {
				digest = cells[1]
			}
		case len(cells) == 3 && strings.HasPrefix(cells[0], "product with halves"):
			product = cells[1]
		case len(cells) == 3 && cells[0] == "prefill of mid, experts resident":
			prefill = cells[1]
		}
	}
	return fmt.Sprintf("| [%s](tests/records/%s) | %d passed, %d failed | %d of %d hold | %s | %s | %s |\n", title, name, passed, failed, hold, claims, product, prefill, digest)
}

func scan(cell string, n *int) bool {
	_, err := fmt.Sscanf(cell, "%d", n)
	return err == nil
}
