// Package token turns text into the ids of a model's vocabulary and back: it reads the byte-level BPE of a
// Hugging Face tokenizer.json, renders chats, and decodes streams.
//
// What it promises:
//
//  1. Ids are those of the reference implementation (the Hugging Face tokenizers library) on the same file.
//  2. They depend on the file and the text alone: what Unicode says about a character is in tables.go, as the
//     reference sees it, and not in the toolchain, whose tables grow with each release.
//  3. Plain text never becomes a special token, whatever it spells: Encode ignores added tokens, Chat encodes
//     every message plainly, and a file in which merges could spell a special token is refused.
//  4. A Decoder yields valid UTF-8 only, and the same text however the ids were handed to it.
//  5. An id that the vocabulary lacks decodes to nothing.
//
// What it refuses, by name: another model than BPE, another split pattern than the two of the Qwen family,
// another normaliser than NFC, added tokens that swallow the white space around them, and text that is not UTF-8.
//
// A Tokenizer may be used from any goroutine, a Decoder from one at a time.
// Start reading at Tokenizer.
package token
