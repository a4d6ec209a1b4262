package main

import (
	"fmt"
	"strconv"
	"strings"

	"lector/worker/client"
)

// placedPiece is a piece of text with the place behind it, as --from takes it.
type placedPiece struct {
	client.Piece
	From string `json:"from"`
}

func placed(p client.Piece) placedPiece {
	return placedPiece{p, fmt.Sprintf("%d:%d,%d", p.Branch, p.First+len(p.IDs), p.Offset+len(p.Text))}
}

// parsePlace reads where to go on in the texts of a job: BRANCH:TOKENS,BYTES, or TOKENS,BYTES of a single one.
func parsePlace(from []string) (client.Place, error) {
	place := client.Place{}
	for _, text := range from {
		branch, rest, several := strings.Cut(text, ":")
		if !several {
			branch, rest = "0", text
		}
		tokens, bytes, ok := strings.Cut(rest, ",")
		var at [3]int
		for i, digits := range []string{branch, tokens, bytes} {
			n, err := strconv.Atoi(digits)
			ok = ok && err == nil && n >= 0
			at[i] = n
		}
		if !ok {
			return nil, fmt.Errorf("--from %q is not BRANCH:TOKENS,BYTES as --pieces prints it, such as 0:12,57", text)
		}
		if _, twice := place[at[0]]; twice {
			return nil, fmt.Errorf("--from %q: text %d has a place already", text, at[0])
		}
		place[at[0]] = client.Given{Tokens: at[1], Bytes: at[2]}
	}
	return place, nil
}
