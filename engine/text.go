package engine

// Tokenizer turns text into tokens and back. A document's text never becomes a special token; only a
// rendered chat does that, and its message contents do not.
type Tokenizer interface {
	// Encode treats text as plain text: what looks like a special token is spelled out.
	Encode(text string) ([]Token, error)
	// Chat renders messages by the model's template up to the assistant's turn.
	Chat(messages []Message, thinking bool) ([]Token, error)
	// Decoder starts a stream that yields valid UTF-8 only.
	Decoder() Decoder
	// Digest names the tokenizer by its content, in hex.
	Digest() string
}

// Message is one turn of a chat; Role is "system", "user" or "assistant".
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Decoder streams text: Add returns what became certain with id, Flush what was left incomplete.
type Decoder interface {
	Add(id Token) string
	Flush() string
}
