package ptx

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"lector/metal"
	"lector/metal/msl"
)

//go:embed rt/*.h
var headerFiles embed.FS

// unit is a translated source.
type unit struct {
	Name      string
	Kernels   []msl.Kernel   // sorted by name
	Constants []msl.Constant // function constants
	Failure   string         `json:",omitempty"` // why it does not compile; nothing else is there then
	text      string         // the PTX
}

// translator makes PTX of sources and keeps it.
type translator struct {
	compiler string // its path, or empty where there is none
	folder   string
	prelude  string // the headers
}

func newTranslator(compiler, folder string) (*translator, error) {
	if compiler == "" {
		compiler = defaultCompiler
	}
	path, err := exec.LookPath(compiler)
	if err != nil {
		path = "" // what the folder holds may do
	}
	t := &translator{compiler: path, folder: folder}
	if t.prelude, err = prelude(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of translated kernels: %w", err)
	}
	return t, nil
}

// prelude is the headers before a kernel source. The mathematics stand first: the base calls them.
func prelude() (string, error) {
	var own [3]msl.Header
	for i, name := range []string{"msl_math.h", "msl_ptx.h", "msl_matrix.h"} {
		text, err := headerFiles.ReadFile("rt/" + name)
		if err != nil {
			return "", err
		}
		own[i] = msl.Header{Name: name, Text: string(text)}
	}
	return msl.Prelude("MSL_CPU", own[0], msl.BaseHeader(), own[1], own[2]), nil // address spaces erased, as there
}

// Translate makes the PTX of sources in a folder, for machines without a compiler. It needs clang, and no GPU.
// The errors are metal.ErrCompile with the compiler's lines, and metal.ErrUnavailable without a compiler.
func Translate(folder string, sources ...metal.Source) error {
	t, err := newTranslator("", folder)
	if err != nil {
		return err
	}
	for _, s := range sources {
		if _, err := t.translate(s); err != nil {
			return err
		}
	}
	return nil
}

// flags are the compiler's.
func flags(fast bool) []string {
	contract := "-ffp-contract=off"
	if fast {
		contract = "-ffp-contract=fast"
	}
	return []string{"-x", "c++", "-std=c++17", "-nostdinc", "-fno-exceptions", "-fno-rtti", "-O3", "-S",
		"--target=nvptx64-nvidia-cuda", "-march=sm_90", "-Xclang", "-target-feature", "-Xclang", "+ptx83",
		"-fconvergent-functions", "-fno-math-errno", contract,
		// matrices kept in arrays are registers only where every loop over them is unrolled
		"-mllvm", "-unroll-threshold=8000", "-mllvm", "-unroll-partial-threshold=120",
		"-Wno-unknown-attributes", "-Wno-duplicate-decl-specifier", "-Wno-unused-function", "-Wno-unused-variable",
		"-Wno-undefined-inline", "-Wno-undefined-internal", "-Wno-unused-value", "-Wno-undefined-var-template"}
}

// digest names what a translation depends on. The compiler is not in it: it is always clang 19.
func (t *translator) digest(source metal.Source) string {
	h := sha256.New()
	for _, p := range append(flags(source.FastMath), t.prelude, source.Name, source.Text) {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// translate is the PTX of a source: what the folder has, or made now. Whether a source compiles is remembered too.
func (t *translator) translate(source metal.Source) (*unit, error) {
	path := filepath.Join(t.folder, t.digest(source))
	u, err := load(path)
	if err != nil {
		if t.compiler == "" {
			return nil, fmt.Errorf("%w: %s is not translated in %s, and %s is not here (on Debian: %s)",
				metal.ErrUnavailable, source.Name, t.folder, defaultCompiler, Install)
		}
		if u, err = t.compile(source); err != nil {
			return nil, err
		}
		if err := u.save(path); err != nil {
			return nil, fmt.Errorf("keep the translation of %s: %w", source.Name, err)
		}
	}
	if u.Failure != "" {
		return nil, fmt.Errorf("%w: %s: %s", metal.ErrCompile, source.Name, u.Failure)
	}
	return u, nil
}

func load(path string) (*unit, error) {
	text, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, err
	}
	u := &unit{}
	if err := json.Unmarshal(text, u); err != nil || u.Failure != "" {
		return u, err
	}
	code, err := os.ReadFile(path + ".ptx")
	u.text = string(code)
	return u, err
}

// save writes the unit; the file that describes it comes last, and makes it count.
func (u *unit) save(path string) error {
	text, err := json.MarshalIndent(u, "", " ")
	if err != nil {
		return err
	}
	if err := place(path+".ptx", []byte(u.text)); err != nil {
		return err
	}
	return place(path+".json", text)
}

// place writes a file whole: others see all of it or nothing.
func place(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "work-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// compile translates a source. What the compiler refuses is a unit with a Failure; an error is anything else.
func (t *translator) compile(source metal.Source) (*unit, error) {
	text, err := t.clang(msl.Marked(source.Name, source.Text), msl.PreprocessorFlags()...)
	var refused refusal
	if errors.As(err, &refused) {
		return &unit{Name: source.Name, Failure: refused.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	rewritten, err := msl.Rewrite(text)
	if err != nil {
		return &unit{Name: source.Name, Failure: err.Error()}, nil
	}
	u := &unit{Name: source.Name, Kernels: rewritten.Kernels, Constants: rewritten.Constants}
	u.text, err = t.clang(t.prelude+rewritten.Body+launchers(rewritten), append(flags(source.FastMath), "-o", "-", "-")...)
	if errors.As(err, &refused) {
		return &unit{Name: source.Name, Failure: refused.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	u.text = bounded(u.text, u.Kernels)
	if missing := unresolved(u.text); missing != "" {
		return &unit{Name: source.Name, Failure: "it calls " + missing + ", which this device does not have"}, nil
	}
	return u, nil
}

// refusal is what the compiler says about a source.
type refusal string

func (r refusal) Error() string { return string(r) }

// clang runs the compiler. A refusal has its messages; another error says that it could not run.
func (t *translator) clang(input string, args ...string) (string, error) {
	cmd := exec.Command(t.compiler, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() && messages.Len() > 0 {
		return "", refusal(strings.TrimSpace(messages.String()))
	}
	if err != nil {
		return "", fmt.Errorf("run %s: %w", t.compiler, err)
	}
	return out.String(), nil
}

// launchers writes one entry a kernel: 64 bits for each buffer and threadgroup argument and a block for each constant
// reference, in the kernel's order.
func launchers(u *msl.Unit) string {
	var b strings.Builder
	b.WriteString("\n#line 1 \"launchers\"\n")
	for _, k := range u.Kernels {
		var parameters, values []string
		for i, a := range k.Arguments {
			name := fmt.Sprintf("a%d", i)
			switch a.Kind {
			case msl.KindThreadgroup:
				parameters = append(parameters, "unsigned long "+name)
				values = append(values, "::metal::impl::threadgroup_at("+name+")")
			case msl.KindBuffer:
				parameters = append(parameters, "void *"+name)
				values = append(values, "::metal::impl::pointer_to{"+name+"}")
			case msl.KindReference:
				if a.Const {
					parameters = append(parameters, "::metal::impl::block "+name)
					values = append(values, "::metal::impl::constant_reference{"+name+"}")
					break
				}
				parameters = append(parameters, "void *"+name)
				values = append(values, "::metal::impl::reference_to{"+name+"}")
			case msl.KindBuiltin:
				value := "32u"
				if a.Builtin != "width" {
					value = "::metal::impl::at_" + a.Builtin + "{}"
				}
				values = append(values, value)
			}
		}
		enter := "::metal::impl::enter(); "
		if k.Early {
			enter = "" // it does so itself
		}
		fmt.Fprintf(&b, "extern \"C\" __attribute__((nvptx_kernel)) void %s%s(%s) { %s%s(%s); }\n",
			msl.LauncherPrefix, k.Name, strings.Join(parameters, ", "), enter, k.Call, strings.Join(values, ", "))
	}
	return b.String()
}
