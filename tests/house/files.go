package house

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// MaxFileBytes bounds a file outside of LargeFolders.
const MaxFileBytes = 1 << 20

// LargeFolders lists where larger files may lie.
func LargeFolders() map[string]string {
	return map[string]string{
		"engine/nano":    "the embedded model",
		"tests/fixtures": "checkpoints and what the reference computed for them",
	}
}

// Files lists the repository's files relative to dir, slash-separated: those that git tracks or would
// track, or every file outside of hidden folders where there is no git.
func Files(dir string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return walkFiles(os.DirFS(dir))
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if stat, err := os.Lstat(filepath.Join(dir, name)); err == nil && stat.Mode().IsRegular() {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

func walkFiles(tree fs.FS) ([]string, error) {
	var files []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && name != ".ci" && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.Type().IsRegular():
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	return files, nil
}

// machinePath finds absolute paths that only one machine has.
var machinePath = regexp.MustCompile(`(?:^|[^\w.\-/*}])/(?:work|root|home|Users)/\w`)

// CheckFile looks at one file of the repository by its name and content.
func CheckFile(name string, content []byte) []Finding {
	var found []Finding
	if len(content) > MaxFileBytes && !inLargeFolder(name) {
		found = append(found, Finding{name, fmt.Sprintf("%d bytes, more than %d", len(content), MaxFileBytes),
			"a clone stays small: large data lies only where LargeFolders says"})
	}
	if bytes.IndexByte(content[:min(len(content), 8000)], 0) >= 0 {
		return found // not text
	}
	for i, line := range bytes.Split(content, []byte("\n")) {
		if at := machinePath.Find(line); at != nil {
			found = append(found, Finding{fmt.Sprintf("%s:%d", name, i+1), fmt.Sprintf("absolute path %q", at),
				"the repository works wherever it is cloned"})
		}
	}
	return found
}

func inLargeFolder(name string) bool {
	for folder := range LargeFolders() {
		if strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return false
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)`)
	quotedPath   = regexp.MustCompile("`([a-z.]+(?:/[\\w.\\-]+)+/?)`")
)

// CheckLinks holds a Markdown file's relative links, and the paths that README.md of the top folder puts
// between backticks, against the files and folders that exist.
func CheckLinks(name string, content []byte, exists func(string) bool) []Finding {
	var paths []string
	for _, m := range markdownLink.FindAllSubmatch(content, -1) {
		if link := string(m[1]); !strings.Contains(link, "://") && !strings.HasPrefix(link, "mailto:") {
			paths = append(paths, path.Join(path.Dir(name), link))
		}
	}
	if name == "README.md" {
		for _, m := range quotedPath.FindAllSubmatch(content, -1) {
			paths = append(paths, path.Clean(string(m[1])))
		}
	}
	var found []Finding
	for _, p := range paths {
		if !exists(p) {
			found = append(found, Finding{name, "names " + p + ", which does not exist", "a newcomer follows what is written"})
		}
	}
	return found
}
