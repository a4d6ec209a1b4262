package ptx

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lector/metal"
	"lector/metal/msl"
)

// external finds a function that PTX calls and does not have.
var external = regexp.MustCompile(`(?m)^\.extern \.func(?:\s*\([^)]*\))?\s*([\w$]+)`)

// unresolved is the name of a function that the text calls and does not have, or "".
func unresolved(text string) string {
	if m := external.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

const entryMark = "\n.visible .entry "

// boundThreads are those of a processor that a kernel which bounds its threadgroup leaves registers for.
const boundThreads = 896

// bounded is the text with the kernels' own bounds on a threadgroup, by which the driver deals out registers.
func bounded(text string, kernels []msl.Kernel) string {
	for _, k := range kernels {
		head := strings.Index(text, entryMark+msl.LauncherPrefix+k.Name+"(")
		if head < 0 || k.MaxThreads == 0 {
			continue
		}
		if body := strings.Index(text[head:], "\n{"); body >= 0 {
			text = text[:head+body] + fmt.Sprintf("\n.maxntid %d, 1, 1\n.minnctapersm %d", k.MaxThreads, max(1, boundThreads/k.MaxThreads)) + text[head+body:]
		}
	}
	return text
}

// only is the text with one entry of all that it has: the driver compiles nothing else then.
func only(text, entry string) (string, error) {
	var b strings.Builder
	found := false
	for {
		at := strings.Index(text, entryMark)
		if at < 0 {
			break
		}
		end := strings.Index(text[at:], "\n}\n")
		if end < 0 {
			return "", fmt.Errorf("entry %d of the PTX does not end", strings.Count(b.String(), entryMark)+1)
		}
		end += at + 3
		b.WriteString(text[:at])
		if strings.HasPrefix(text[at+len(entryMark):], entry+"(") {
			b.WriteString(text[at:end])
			found = true
		}
		text = "\n" + text[end:]
	}
	if !found {
		return "", fmt.Errorf("the PTX has no entry %s", entry)
	}
	b.WriteString(text)
	return b.String(), nil
}

// bits is a function constant's value as the kernel reads it. as says which of the unit's types it has.
func bits(c metal.Constant) (value uint32, as string) {
	switch x := c.Value.(type) {
	case bool:
		if x {
			value = 1
		}
		return value, "bool"
	case int32:
		return uint32(x), "int"
	case uint32:
		return x, "uint"
	case float32:
		return math.Float32bits(x), "float"
	}
	return 0, ""
}

// values checks the constants of a pipeline against those of the unit. As in Metal, what no kernel asks for is ignored.
func (u *unit) values(constants []metal.Constant) (map[int]uint32, error) {
	values := map[int]uint32{}
	for _, c := range constants {
		i := slices.IndexFunc(u.Constants, func(k msl.Constant) bool { return k.Index == c.Index })
		if i < 0 {
			continue
		}
		value, as := bits(c)
		if want := u.Constants[i]; want.Type != as {
			return nil, fmt.Errorf("function constant %d (%s) is a %s, and its value a %T", c.Index, want.Name, want.Type, c.Value)
		}
		values[c.Index] = value
	}
	return values, nil
}

// placeholder finds the names that stand for function constants.
var placeholder = regexp.MustCompile(`\bMSL_(CONSTANT|DEFINED)_(\d+)\b`)

// specialised is the PTX of one kernel with numbers for its function constants. One that it reads must have a value,
// unless it asks first whether there is one.
func (u *unit) specialised(kernel string, constants []metal.Constant) (string, error) {
	values, err := u.values(constants)
	if err != nil {
		return "", err
	}
	text, err := only(u.text, msl.LauncherPrefix+kernel)
	if err != nil {
		return "", err
	}
	missing := -1
	text = placeholder.ReplaceAllStringFunc(text, func(name string) string {
		m := placeholder.FindStringSubmatch(name)
		index, _ := strconv.Atoi(m[2])
		value, ok := values[index]
		switch {
		case m[1] == "DEFINED" && ok:
			return "1"
		case m[1] == "DEFINED":
			return "0"
		case !ok && (missing < 0 || index < missing) && !strings.Contains(text, "MSL_DEFINED_"+m[2]+";"):
			missing = index
		}
		return strconv.FormatUint(uint64(value), 10)
	})
	if missing >= 0 {
		i := slices.IndexFunc(u.Constants, func(k msl.Constant) bool { return k.Index == missing })
		return "", fmt.Errorf("function constant %d (%s) has no value", missing, u.Constants[i].Name)
	}
	return text, nil
}
