// Package deploy holds how lector runs on machines of its own: the units of a worker, which `lector service install`
// writes; and beside them, for people, a compose file, the configuration of a NATS cluster and of Prometheus, a
// dashboard, alerts, a bucket policy, a table of sizes, and the runbook.
//
// What it promises:
//
//  1. A unit stops a worker by SIGTERM and gives it the time to finish its chunk; it is started again when it fails,
//     but not when its flags are at fault.
//  2. Any argument, path and value comes through the quoting of its system as it was.
//  3. Every query in a dashboard or an alert is one that a real process answers, and every alert has an entry in the
//     runbook (tests/deploy).
//
// It writes no file and starts nothing: cmd does. Start reading at Service; README.md lists the files for people.
package deploy

import (
	"bytes"
	"embed"
	"encoding/xml"
	"fmt"
	"strings"
	"text/template"
)

//go:embed systemd/lector-worker.service launchd/lector.worker.plist
var units embed.FS

// Names of the service, as the systems know it.
const (
	SystemdUnit  = "lector-worker.service"
	LaunchdLabel = "lector.worker"
)

// Service is a worker as a system's service.
type Service struct {
	Program   string   // absolute path
	Arguments []string // after it, beginning with the command
	Folder    string   // absolute: relative paths of the arguments begin here
	Variables []Variable
	Secrets   string // systemd: a file of more variables, which need not be there
	Log       string // launchd: where standard error goes
	System    bool   // for the whole machine instead of one user
	User      string // that a System service runs as
}

// Variable is one of the environment.
type Variable struct{ Name, Value string }

// Command is the program with its arguments.
func (s Service) Command() []string { return append([]string{s.Program}, s.Arguments...) }

// Environment is the variables as NAME=VALUE.
func (s Service) Environment() []string {
	var out []string
	for _, v := range s.Variables {
		out = append(out, v.Name+"="+v.Value)
	}
	return out
}

// Systemd is the unit of the service.
func (s Service) Systemd() (string, error) { return s.fill("systemd/lector-worker.service") }

// Launchd is the property list of the service.
func (s Service) Launchd() (string, error) { return s.fill("launchd/lector.worker.plist") }

func (s Service) fill(name string) (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}
	t, err := template.New("").Funcs(template.FuncMap{"word": quoteWord, "value": quoteValue, "systemdPath": pathSystemd, "xml": quoteXML}).ParseFS(units, name)
	if err != nil {
		return "", fmt.Errorf("read unit %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, name[strings.LastIndexByte(name, '/')+1:], s); err != nil {
		return "", fmt.Errorf("fill unit %s: %w", name, err)
	}
	return out.String(), nil
}

// check refuses what no quoting brings through.
func (s Service) check() error {
	for _, text := range append(append(s.Command(), s.Environment()...), s.Folder, s.Secrets, s.Log, s.User) {
		for _, r := range text {
			if r < ' ' || r == 0x7f || r == '\ufffd' {
				return fmt.Errorf("write a unit with %q: it holds a control character or is no UTF-8", text)
			}
		}
	}
	return nil
}

// quoteWord brings a word of a command line through systemd's quoting, its specifiers (%) and its variables ($).
func quoteWord(s string) string { return strings.ReplaceAll(quoteValue(s), "$", "$$") }

// quoteValue brings an assignment through, where $ means nothing.
func quoteValue(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`).Replace(s) + `"`
}

// pathSystemd brings a path through where systemd takes no quotes and knows specifiers alone.
func pathSystemd(s string) string { return strings.ReplaceAll(s, "%", "%%") }

func quoteXML(s string) (string, error) {
	var out bytes.Buffer
	err := xml.EscapeText(&out, []byte(s))
	return out.String(), err
}
