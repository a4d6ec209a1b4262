package token

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"lector/engine"
)

// chatTokens are the added tokens that the template writes; engine.NoToken where the vocabulary lacks one.
type chatTokens struct {
	start, end        engine.Token // <|im_start|>, <|im_end|>
	think, endOfThink engine.Token
}

func (t *Tokenizer) findChatTokens() chatTokens {
	find := func(content string) engine.Token {
		id, _ := t.Added(content)
		return id
	}
	c := chatTokens{find("<|im_start|>"), find("<|im_end|>"), find("<think>"), find("</think>")}
	if c.think == engine.NoToken || c.endOfThink == engine.NoToken {
		c.think, c.endOfThink = engine.NoToken, engine.NoToken
	}
	return c
}

// Chat renders messages by the model's ChatML template, up to the start of the assistant's turn.
//
// With thinking, that turn starts with an open think block; without, the block is there and closed. The reasoning
// effort is the template's medium, the one that adds no instruction to the system turn. Earlier turns of the
// assistant carry an empty block, since a message has no reasoning beside its content. A vocabulary without
// <think> and </think> gets plain ChatML: no block, whatever thinking says.
//
// Contents lose the white space around them, and are plain text: a special token's name in them is spelled out.
//
// Errors: no messages, a role other than system, user and assistant, a system message that is not the first, no
// user message, content that is not UTF-8, a vocabulary without <|im_start|> and <|im_end|>.
func (t *Tokenizer) Chat(messages []engine.Message, thinking bool) ([]engine.Token, error) {
	if t.chat.start == engine.NoToken || t.chat.end == engine.NoToken {
		return nil, fmt.Errorf("render chat: tokenizer %s has no <|im_start|> and <|im_end|>; use a plain prompt", t.name)
	}
	if err := checkMessages(messages); err != nil {
		return nil, fmt.Errorf("render chat: %w", err)
	}
	r := rendering{t: t}
	thinks := t.chat.think != engine.NoToken
	r.system(messages[0])
	for _, m := range messages {
		switch m.Role {
		case "user":
			r.turn(m.Role)
			r.text(trim(m.Content))
			r.endTurn()
		case "assistant":
			r.turn(m.Role)
			r.closedThought()
			r.text(trim(m.Content))
			r.endTurn()
		}
	}
	r.turn("assistant")
	if thinks && thinking {
		r.token(t.chat.think)
		r.text("\n")
	} else {
		r.closedThought()
	}
	r.flush()
	return r.ids, nil
}

func checkMessages(messages []engine.Message) error {
	if len(messages) == 0 {
		return errors.New("no messages")
	}
	users := 0
	for i, m := range messages {
		switch {
		case m.Role == "system" && i > 0:
			return fmt.Errorf("message %d is a system message; only the first may be", i)
		case m.Role == "user":
			users++
		case m.Role != "system" && m.Role != "assistant":
			return fmt.Errorf("message %d has the role %q; use system, user or assistant", i, m.Role)
		}
		if err := checkText(m.Content); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	if users == 0 {
		return errors.New("no user message")
	}
	return nil
}

// trim removes white space as the template's filter does, to which the ASCII separators belong.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool {
		return unicode.Is(unicode.White_Space, r) || r >= 0x1C && r <= 0x1F
	})
}

// rendering collects a chat: plain text grows until a token ends it, and is then encoded as one, because the
// reference splits and merges across the pieces that a template is made of.
type rendering struct {
	t    *Tokenizer
	ids  []engine.Token
	open strings.Builder // text not encoded yet
}

func (r *rendering) text(s string) { r.open.WriteString(s) }

func (r *rendering) token(id engine.Token) {
	r.flush()
	r.ids = append(r.ids, id)
}

func (r *rendering) flush() {
	r.ids = r.t.plain(r.ids, r.t.normalise(r.open.String()))
	r.open.Reset()
}

// turn opens a turn of role.
func (r *rendering) turn(role string) {
	r.token(r.t.chat.start)
	r.text(role + "\n")
}

func (r *rendering) endTurn() {
	r.token(r.t.chat.end)
	r.text("\n")
}

// closedThought writes an empty think block, if the vocabulary has one.
func (r *rendering) closedThought() {
	if r.t.chat.think == engine.NoToken {
		return
	}
	r.token(r.t.chat.think)
	r.text("\n\n")
	r.token(r.t.chat.endOfThink)
	r.text("\n\n")
}

// system writes the system turn, unless there is nothing to say in it.
func (r *rendering) system(first engine.Message) {
	content := trim(first.Content)
	if first.Role != "system" || content == "" {
		return
	}
	r.turn("system")
	r.text(content)
	r.endTurn()
}
