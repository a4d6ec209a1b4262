package deploy_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lector/deploy"
)

// words reads a systemd command line: the quoting, the specifiers and the variables that its manual describes, as far
// as a unit of ours uses them.
func words(line string) ([]string, error) {
	var out []string
	for i := 0; i < len(line); {
		if line[i] == ' ' {
			i++
			continue
		}
		if line[i] != '"' {
			return nil, fmt.Errorf("a word without quotes at %d of %q", i, line)
		}
		var w strings.Builder
		for i++; ; i++ {
			if i >= len(line) {
				return nil, fmt.Errorf("no end of a quote in %q", line)
			}
			c := line[i]
			if c == '"' {
				i++
				break
			}
			switch c {
			case '\\':
				i++
				if line[i] != '\\' && line[i] != '"' {
					return nil, fmt.Errorf("escape \\%c in %q", line[i], line)
				}
				c = line[i]
			case '%', '$':
				i++
				if i >= len(line) || line[i] != c {
					return nil, fmt.Errorf("a single %c in %q", c, line)
				}
			}
			w.WriteByte(c)
		}
		out = append(out, w.String())
	}
	return out, nil
}

// setting is the value of a unit's key.
func setting(t rapid.TB, unit, key string) string {
	for line := range strings.Lines(unit) {
		if v, ok := strings.CutPrefix(line, key+"="); ok {
			return strings.TrimSuffix(v, "\n")
		}
	}
	t.Fatalf("no %s in\n%s", key, unit)
	return ""
}

func anyService(t *rapid.T) deploy.Service {
	text := rapid.StringOfN(rapid.OneOf(rapid.RuneFrom([]rune(`"'\%$;#&<> =`)), rapid.RuneFrom([]rune("aZ0-/.é界"))), 0, 20, -1)
	return deploy.Service{
		Program: "/bin/" + text.Draw(t, "program"), Arguments: rapid.SliceOfN(text, 0, 5).Draw(t, "arguments"),
		Folder: "/data", Log: "/log/" + text.Draw(t, "log"), System: rapid.Bool().Draw(t, "system"), User: "reader",
		Variables: []deploy.Variable{{Name: "A", Value: text.Draw(t, "value")}},
	}
}

// Any argument comes through systemd's quoting as it was.
func TestSystemdKeepsWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyService(t)
		unit, err := s.Systemd()
		if err != nil {
			t.Fatal(err)
		}
		got, err := words(setting(t, unit, "ExecStart"))
		if err != nil || !slices.Equal(got, s.Command()) {
			t.Fatalf("%q came back as %q: %v", s.Command(), got, err)
		}
	})
}

// plistText is the strings of a property list in order, keys too.
func plistText(text string) ([]string, error) {
	var out []string
	d := xml.NewDecoder(strings.NewReader(text))
	inside := false
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			if inside = tok.Name.Local == "string" || tok.Name.Local == "key"; inside {
				out = append(out, "")
			}
		case xml.CharData:
			if inside {
				out[len(out)-1] += string(tok)
			}
		case xml.EndElement:
			inside = false
		}
	}
}

// Any argument comes through a property list as it was.
func TestLaunchdKeepsWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyService(t)
		list, err := s.Launchd()
		if err != nil {
			t.Fatal(err)
		}
		got, err := plistText(list)
		if err != nil {
			t.Fatalf("%v in\n%s", err, list)
		}
		want := append([]string{"Label", deploy.LaunchdLabel, "ProgramArguments"}, s.Command()...)
		want = append(want, "WorkingDirectory", s.Folder, "EnvironmentVariables", "A", s.Variables[0].Value)
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Fatalf("%q came back as %q", want, got)
		}
	})
}

// What no quoting brings through is refused.
func TestControlCharactersAreRefused(t *testing.T) {
	for _, bad := range []string{"a\nExecStart=/bin/evil", "a\x00b", "\x7f", "a\xffb"} {
		for _, s := range []deploy.Service{
			{Program: "/p", Arguments: []string{bad}}, {Program: "/p", Folder: bad}, {Program: bad},
			{Program: "/p", Variables: []deploy.Variable{{Name: "A", Value: bad}}}, {Program: "/p", User: bad},
		} {
			if _, err := s.Systemd(); err == nil {
				t.Errorf("systemd took %q", bad)
			}
			if _, err := s.Launchd(); err == nil {
				t.Errorf("launchd took %q", bad)
			}
		}
	}
}

// Where systemd is installed, it reads the unit without a word.
func TestSystemdReadsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed: the other tests read the unit by the manual")
		return
	}
	for _, system := range []bool{false, true} {
		s := deploy.Service{
			Program: "/bin/sh", Arguments: []string{"worker", "--store", `s3://b?a=100%&c="$HOME"`}, Folder: "/tmp",
			Secrets: "/etc/lector/worker.env", System: system, User: "root", Variables: []deploy.Variable{{Name: "A", Value: "b c"}},
		}
		unit, err := s.Systemd()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), deploy.SystemdUnit)
		if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput(); err != nil || strings.Contains(string(out), deploy.SystemdUnit) {
			t.Errorf("%v: %s\n%s", err, out, unit)
		}
	}
}
