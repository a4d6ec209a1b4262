package house

import (
	"slices"
	"sort"
	"strings"
)

// Patterns with a meaning of their own in an Edge; anything else is a path, a path ending in "/..." for a
// folder with all below it, or a name starting with "*" for packages whose name ends so. Paths of ours are
// written without the module.
const (
	Ours    = "<ours>"    // every package of the module
	Foreign = "<foreign>" // every package of another module, the standard library aside
)

// Package is what the checks need of one package; Imports are those of its own files, tests aside.
type Package struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Error      string // why the package did not load
}

// Edge is a row of the table: packages matching From, but not Except, must not reach what matches To, but
// not Allow.
type Edge struct {
	From   []string
	Except []string
	To     []string
	Allow  []string
	Direct bool // only their own import lines count; otherwise also what they reach through others
	Why    string
}

// graph is the packages of one platform, by import path.
type graph struct {
	module string
	pkgs   map[string]Package
}

// CheckImports holds the packages against the table. Every package of the module must be governed by a row
// that limits which packages of ours it reaches, or lie under one of the free patterns.
func CheckImports(module string, pkgs []Package, edges []Edge, free []string) []Finding {
	g := graph{module: module, pkgs: map[string]Package{}}
	for _, p := range pkgs {
		g.pkgs[p.ImportPath] = p
	}
	var found []Finding
	for _, path := range g.ours() {
		if p := g.pkgs[path]; p.Error != "" {
			found = append(found, Finding{path, p.Error, "a package that does not load cannot be checked"})
			continue
		}
		governed := g.matchAny(free, path)
		for _, e := range edges {
			if !g.matchAny(e.From, path) || g.matchAny(e.Except, path) {
				continue
			}
			governed = governed || slices.Contains(e.To, Ours)
			found = append(found, g.check(path, e)...)
		}
		if !governed {
			found = append(found, Finding{path, "no row of the table says what it may import",
				"a new folder states its place before it grows"})
		}
	}
	return found
}

// ours lists the module's packages, sorted.
func (g graph) ours() []string {
	var paths []string
	for path := range g.pkgs {
		if g.isOurs(path) {
			paths = append(paths, path)
		}
	}
	sort.Strings(paths)
	return paths
}

// check searches breadth first from one package, so that the chain it prints is a shortest one. A chain
// ends at the first package that breaks the rule: what lies behind it is that package's affair.
func (g graph) check(from string, e Edge) []Finding {
	var found []Finding
	chain := map[string]string{from: from}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range g.pkgs[queue[0]].Imports {
			if chain[next] != "" {
				continue
			}
			chain[next] = chain[queue[0]] + " -> " + next
			if g.matchAny(e.To, next) && !g.matchAny(e.Allow, next) {
				found = append(found, Finding{from, "must not import: " + chain[next], e.Why})
				continue
			}
			if !e.Direct {
				queue = append(queue, next)
			}
		}
	}
	return found
}

func (g graph) isOurs(path string) bool {
	return path == g.module || strings.HasPrefix(path, g.module+"/")
}

func (g graph) matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return g.match(p, path) })
}

func (g graph) match(pattern, path string) bool {
	switch pattern {
	case Ours:
		return g.isOurs(path)
	case Foreign:
		return !g.isOurs(path) && !g.pkgs[path].Standard
	}
	if g.isOurs(path) {
		path = strings.TrimPrefix(strings.TrimPrefix(path, g.module), "/")
	} else if strings.HasPrefix(pattern, "*") {
		return false // names of ours only
	}
	if name, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(path, name)
	}
	if folder, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == folder || strings.HasPrefix(path, folder+"/")
	}
	return path == pattern
}
