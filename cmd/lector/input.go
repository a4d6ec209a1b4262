package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"lector/engine"
)

// maxInput bounds a document or prompt read into memory.
const maxInput = 256 << 20

// readInput reads a file, or standard input for "-", and names it for people.
func (a *app) readInput(path string) (text []byte, name string, err error) {
	r, name := a.in, "standard input"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, "", badInput(fmt.Errorf("read document: %w", err))
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return nil, "", badInput(fmt.Errorf("read document: %s is a folder: give a file", path))
		}
		r, name = f, filepath.Base(path)
	}
	text, err = io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, "", badInput(fmt.Errorf("read document %s: %w", name, err))
	}
	if len(text) > maxInput {
		return nil, "", badInput(fmt.Errorf("document %s has more than %d MiB: cut it into parts", name, maxInput>>20))
	}
	return text, name, nil
}

// documentTokens turns what was read into token ids: text by the tokenizer, or a list of ids.
func documentTokens(m *model, text []byte, name string, ids bool) ([]engine.Token, error) {
	var tokens []engine.Token
	var err error
	if ids {
		tokens, err = parseTokens(string(text))
	} else if err = plainText(text); err == nil {
		tokens, err = m.text.Encode(string(text))
	}
	if err != nil {
		return nil, badInput(fmt.Errorf("document %s: %w", name, err))
	}
	if len(tokens) == 0 {
		return nil, badInput(fmt.Errorf("document %s is empty: there is nothing to read", name))
	}
	return tokens, nil
}

// plainText refuses a binary file by the first byte that text does not have.
func plainText(text []byte) error {
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRune(text[at:])
		if r == 0 || r == utf8.RuneError && n == 1 {
			return fmt.Errorf("not UTF-8 text: byte %#02x at offset %d (convert it to text, or give token ids with --tokens)", text[at], at)
		}
		at += n
	}
	return nil
}

// parseTokens reads token ids: a JSON array, or numbers separated by commas or white space.
func parseTokens(s string) ([]engine.Token, error) {
	var ids []engine.Token
	if trimmed := strings.TrimSpace(s); strings.HasPrefix(trimmed, "[") {
		if err := json.Unmarshal([]byte(trimmed), &ids); err != nil {
			return nil, fmt.Errorf("read token ids: %w", err)
		}
		return ids, nil
	}
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' }) {
		id, err := strconv.ParseInt(f, 10, 32)
		if err != nil {
			var num *strconv.NumError
			if errors.As(err, &num) {
				err = num.Err
			}
			return nil, fmt.Errorf("token id %.40q: %w", f, err)
		}
		ids = append(ids, engine.Token(id))
	}
	return ids, nil
}
