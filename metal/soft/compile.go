//go:build linux && (amd64 || arm64)

package soft

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/cpu"

	"lector/metal"
	"lector/metal/msl"
)

// compiler makes shared objects of sources and keeps them.
type compiler struct {
	path    string // of clang
	version string
	folder  string
	mode    Mode
	files   map[string]string // the runtime's and the base header, by name
}

func newCompiler(o Options, folder string) (*compiler, error) {
	path, err := findCompiler(o.Compiler)
	if err != nil {
		return nil, err
	}
	version, err := clang(path, "", "--version")
	if err != nil {
		return nil, err
	}
	base := msl.BaseHeader()
	c := &compiler{path: path, version: version, folder: folder, mode: o.Mode, files: map[string]string{base.Name: base.Text}}
	names, err := fs.Glob(runtimeFiles, "rt/*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := runtimeFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		c.files[filepath.Base(name)] = string(text)
	}
	return c, os.MkdirAll(folder, 0o700)
}

// target are the flags that say which processor code is for.
func target() []string {
	if runtime.GOARCH == "amd64" && cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasBMI2 {
		return []string{"-march=x86-64-v3"}
	}
	return nil
}

// flags are those of kernels.
func (c *compiler) flags(fast bool) []string {
	contract := "-ffp-contract=off"
	if fast {
		contract = "-ffp-contract=fast"
	}
	flags := append([]string{"-std=c++17", "-fno-exceptions", "-fno-rtti", "-O2", "-g1", "-fPIC", "-fvisibility=hidden",
		"-fno-math-errno", "-Xclang", "-ffloat16-excess-precision=none", contract}, target()...)
	switch c.mode {
	case Race:
		flags = append(flags, "-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm", "-tsan-instrument-atomics=0")
	case Undefined:
		flags = append(flags, "-fsanitize=array-bounds,alignment,shift,integer-divide-by-zero,float-cast-overflow,null,signed-integer-overflow",
			"-fsanitize-minimal-runtime")
	}
	return flags
}

// runtimeFlags are those of the runtime.
func (c *compiler) runtimeFlags() []string {
	flags := append([]string{"-std=c++17", "-fno-exceptions", "-fno-rtti", "-O2", "-g1", "-fPIC", "-fvisibility=hidden"}, target()...)
	if c.mode == Race {
		flags = append(flags, "-DMSL_RACE=1")
	}
	return flags
}

// digest names what a compilation depends on.
func (c *compiler) digest(parts ...string) string {
	h := sha256.New()
	for _, p := range append([]string{c.version, c.mode.String()}, parts...) {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// runtimeDigest covers the runtime's text, headers of kernels included.
func (c *compiler) runtimeDigest() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		parts = append(parts, "rt/"+name, c.files[name])
	}
	return c.digest(append(parts, c.runtimeFlags()...)...)
}

// runtime is the path of the runtime's object, compiled if it is not there.
func (c *compiler) runtime() (string, error) {
	object := filepath.Join(c.folder, "msl-runtime-"+c.runtimeDigest()+".so")
	return object, c.once(object, func(work string) error {
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		args := append(c.runtimeFlags(), "-shared", "-Wl,-soname,"+filepath.Base(object),
			"-o", filepath.Join(work, "out"), filepath.Join(work, "runtime.cpp"))
		if _, err := clang(c.path, "", args...); err != nil {
			return fmt.Errorf("compile the runtime of the soft device: %w", err)
		}
		return nil
	})
}

// object is a compiled source: where it lies and what is in it.
type object struct {
	path string
	unit *msl.Unit
}

// library compiles a source against the runtime, or finds it compiled.
func (c *compiler) library(source metal.Source, runtimePath string) (object, error) {
	name := "msl-" + c.digest(append(c.flags(source.FastMath), c.runtimeDigest(), source.Name, source.Text)...)
	o := object{path: filepath.Join(c.folder, name+".so")}
	description := filepath.Join(c.folder, name+".json")
	if text, err := os.ReadFile(description); err == nil && json.Unmarshal(text, &o.unit) == nil && o.unit != nil {
		if _, err := os.Stat(o.path); err == nil {
			return o, nil
		}
	}
	unit, err := rewrite(c.path, source)
	if err != nil {
		return object{}, err
	}
	o.unit = unit
	if err := c.once(o.path, func(work string) error { return c.build(source, unit, runtimePath, work) }); err != nil {
		return object{}, err
	}
	kept := *unit
	kept.Body = ""
	text, err := json.Marshal(&kept)
	if err != nil {
		return object{}, err
	}
	return o, c.once(description, func(work string) error { return os.WriteFile(filepath.Join(work, "out"), text, 0o644) })
}

// build compiles a rewritten source into work/out.
func (c *compiler) build(source metal.Source, unit *msl.Unit, runtimePath, work string) error {
	text, err := withHeaders("MSL_CPU", unit.Body+msl.CPULaunchers(unit), "msl_abi.h", "msl_cpu.h")
	if err != nil {
		return err
	}
	compiled := filepath.Join(work, "kernels.o")
	args := append([]string{"-x", "c++", "-nostdinc", "-c", "-o", compiled}, append(c.flags(source.FastMath), quiet()...)...)
	if _, err := clang(c.path, text, append(args, "-")...); err != nil {
		return fmt.Errorf("%w: %s: %w", metal.ErrCompile, source.Name, err)
	}
	if _, err := clang(c.path, "", "-shared", "-o", filepath.Join(work, "out"), compiled, runtimePath, "-Wl,-rpath,$ORIGIN", "-lm"); err != nil {
		return fmt.Errorf("link %s: %w", source.Name, err)
	}
	return nil
}

// once makes a file by letting make write work/out. Several processes may do so at once: each makes it whole
// and moves it into place, and the contents are the same.
func (c *compiler) once(path string, make func(work string) error) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	work, err := os.MkdirTemp(c.folder, "work-")
	if err != nil {
		return fmt.Errorf("compile in %s: %w", c.folder, err)
	}
	defer os.RemoveAll(work)
	if err := make(work); err != nil {
		return err
	}
	return os.Rename(filepath.Join(work, "out"), path)
}
