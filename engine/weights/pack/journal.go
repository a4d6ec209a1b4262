package pack

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// journalFile keeps what is finished while a store is being written. It is removed after the manifest is there.
const journalFile = "pack.journal"

// journalHead is the first line: what a run may go on with.
type journalHead struct {
	Journal  int    `json:"lector_pack_journal"`
	Source   string `json:"source"` // fingerprint of the source's files
	Settings string `json:"settings"`
}

// journalLine names a finished unit.
type journalLine struct {
	Unit   string   `json:"unit"`
	SHA256 []string `json:"sha256"` // by span
}

// journal is the open journal of a run. Lines need not be on disk before the data that they speak of, or after it:
// reuse compares the data.
type journal struct {
	file file
	end  int64
	done map[string][]string // digests by unit, of earlier runs
}

// earlier is what the journal of an earlier run says; the zero value where there is none.
type earlier struct {
	head journalHead
	done map[string][]string // digests by unit
	end  int64               // bytes of whole lines
}

// readJournal reads the journal in a folder. A line that was cut short, and all behind it, do not count.
func readJournal(dir string) (was earlier) {
	text, err := os.ReadFile(filepath.Join(dir, journalFile))
	if err != nil {
		return was
	}
	was.done = map[string][]string{}
	lines := bufio.NewReader(bytes.NewReader(text))
	for first := true; ; first = false {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return was
		}
		var unit journalLine
		if first {
			err = strict(line, &was.head)
		} else if err = strict(line, &unit); err == nil {
			was.done[unit.Unit] = unit.SHA256
		}
		if err != nil {
			return was
		}
		was.end += int64(len(line))
	}
}

func strict(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// write appends a line.
func (j *journal) write(v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		line = append(line, '\n')
		_, err = j.file.WriteAt(line, j.end)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", journalFile, err)
	}
	j.end += int64(len(line))
	return nil
}
