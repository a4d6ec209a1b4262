package disk_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lector/cache/disk"
)

// osRoot is os.Root itself.
type osRoot struct{ *os.Root }

func (r osRoot) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := r.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// outcome is what a call came to: the kinds of its error, or the text.
func outcome(text string, err error) string {
	if err == nil {
		return text
	}
	for _, kind := range []error{fs.ErrNotExist, fs.ErrExist, syscall.ENOTDIR, syscall.EISDIR, syscall.ENOTEMPTY} { // callers ask for those
		if errors.Is(err, kind) {
			text += ", " + kind.Error()
		}
	}
	return "refused" + text
}

func write(r disk.Root, name, text string) error {
	f, err := r.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Close())
}

func read(r disk.Root, name string) (string, error) {
	f, err := r.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(f)
	return string(b), errors.Join(err, f.Close())
}

func list(r disk.Root, name string) (string, error) {
	f, err := r.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	entries, err := f.ReadDir(-1)
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = e.IsDir()
	}
	return outcome(strings.Join([]string{name, "holds"}, " "), err) + outcome("", f.Close()) + sorted(names), nil
}

func sorted(names map[string]bool) (out string) {
	for _, n := range []string{"a", "b", "c", "deep", "in", "near", "out", "x"} {
		if folder, ok := names[n]; ok {
			out += " " + n
			if folder {
				out += "/"
			}
		}
	}
	return out
}

func stat(r disk.Root, name string) (string, error) {
	info, err := r.Lstat(name)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return info.Mode().String() + " " + info.Name(), nil
	}
	return info.Mode().String() + " " + info.Name() + strings.Repeat(".", int(info.Size())), nil
}

// stepsWithin are of files and folders, some that are there and some not.
func stepsWithin() []func(disk.Root) (string, error) {
	return []func(disk.Root) (string, error){
		func(r disk.Root) (string, error) { return "", r.MkdirAll("in/deep", 0o700) },
		func(r disk.Root) (string, error) { return "", r.MkdirAll("in/deep", 0o700) },
		func(r disk.Root) (string, error) { return "", write(r, "in/deep/a", "text") },
		func(r disk.Root) (string, error) { return "", write(r, "in/deep/a", "again") },
		func(r disk.Root) (string, error) { return "", write(r, "nowhere/a", "text") },
		func(r disk.Root) (string, error) { return "", write(r, "in/deep/a/b", "text") },
		func(r disk.Root) (string, error) { return "", r.MkdirAll("in/deep/a", 0o700) },
		func(r disk.Root) (string, error) { return read(r, "in/deep/a") },
		func(r disk.Root) (string, error) { return read(r, "in/deep/b") },
		func(r disk.Root) (string, error) { return "", r.Link("in/deep/a", "in/b") },
		func(r disk.Root) (string, error) { return "", r.Link("in/deep/a", "in/b") },
		func(r disk.Root) (string, error) { return "", r.Link("in/deep/a", "nowhere/b") },
		func(r disk.Root) (string, error) { return "", r.Link("in/nothing", "in/c") },
		func(r disk.Root) (string, error) { return "", r.Rename("in/b", "in/c") },
		func(r disk.Root) (string, error) { return "", r.Rename("in/b", "in/c") },
		func(r disk.Root) (string, error) { return read(r, "in/c") },
		func(r disk.Root) (string, error) { return stat(r, "in/c") },
		func(r disk.Root) (string, error) { return stat(r, "in") },
		func(r disk.Root) (string, error) { return stat(r, "in/nothing") },
		func(r disk.Root) (string, error) { return list(r, "in") },
		func(r disk.Root) (string, error) { return "", r.Remove("in") },
		func(r disk.Root) (string, error) { return "", r.Remove("in/c") },
		func(r disk.Root) (string, error) { return "", r.Remove("in/c") },
		func(r disk.Root) (string, error) { return "", r.Remove("in/deep/a") },
		func(r disk.Root) (string, error) { return "", r.Remove("in/deep") },
		func(r disk.Root) (string, error) { return list(r, "in") },
	}
}

// stepsOut try links, out of the folder and within, and a folder that is closed.
func stepsOut() []func(disk.Root) (string, error) {
	return []func(disk.Root) (string, error){
		func(r disk.Root) (string, error) { return read(r, "near") },
		func(r disk.Root) (string, error) { return stat(r, "near") },
		func(r disk.Root) (string, error) { return read(r, "out/x") },
		func(r disk.Root) (string, error) { return stat(r, "out") },
		func(r disk.Root) (string, error) { return stat(r, "out/x") },
		func(r disk.Root) (string, error) { return "", write(r, "out/y", "text") },
		func(r disk.Root) (string, error) { return "", r.Link("x", "out/y") },
		func(r disk.Root) (string, error) { return "", r.Link("out/x", "in/y") },
		func(r disk.Root) (string, error) { return "", r.Rename("x", "out/y") },
		func(r disk.Root) (string, error) { return "", r.Remove("out/x") },
		func(r disk.Root) (string, error) { return "", r.MkdirAll("out/deep", 0o700) },
		func(r disk.Root) (string, error) { return read(r, "../x") },
		func(r disk.Root) (string, error) { return list(r, ".") },
		func(r disk.Root) (string, error) { return "", r.Close() },
		func(r disk.Root) (string, error) { return read(r, "x") },
		func(r disk.Root) (string, error) { return "", r.Remove("x") },
	}
}

// Whatever shorter ways a system has, a root does what os.Root does, and lets nothing lead out.
func TestRootIsThatOfTheSystem(t *testing.T) {
	steps := append(stepsWithin(), stepsOut()...)
	var said [2][]string
	for i, open := range []func(string) (disk.Root, error){disk.OpenRoot, func(f string) (disk.Root, error) {
		r, err := os.OpenRoot(f)
		return osRoot{r}, err
	}} {
		folder, outside := t.TempDir(), t.TempDir()
		for file, text := range map[string]string{filepath.Join(outside, "x"): "secret", filepath.Join(folder, "x"): "own"} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for name, to := range map[string]string{"out": outside, "near": "x"} {
			if err := os.Symlink(to, filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
		r, err := open(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			text, err := step(r)
			said[i] = append(said[i], outcome(text, err))
			if strings.Contains(text, "secret") {
				t.Error("something outside was read")
			}
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Errorf("outside holds %v, %v", entries, err)
		}
	}
	for k := range steps {
		if said[0][k] != said[1][k] {
			t.Errorf("step %d: %q, os.Root says %q", k, said[0][k], said[1][k])
		}
	}
}
