// Package house checks what the compiler does not: who may import whom, who reads the environment, what
// must carry a comment, how large things may grow, and what must not lie in the repository.
//
// What it promises:
//
//  1. A finding names the place, what is wrong there, and the reason of the rule.
//  2. Every rule is a row of a table or one small function, and has a test that sees it fail.
//  3. An exception is a row with its reason; a row that excuses nothing any more is itself a finding.
//
// It changes nothing in the tree, and only this folder's tests call it. Start reading at Edges, the table
// of imports, then Limits.
package house

import "fmt"

// Finding is one broken rule.
type Finding struct {
	Where string // file, package or name
	What  string // is wrong there
	Why   string // the rule exists
}

// String is the finding as a test prints it.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s\n\treason: %s", f.Where, f.What, f.Why)
}
