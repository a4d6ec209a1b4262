package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Platform is an operating system and an architecture, as Go names them.
type Platform struct{ OS, Arch string }

// List asks the go command for the packages of the module in dir and for all that they reach on a platform.
// Packages that do not load are listed with their Error.
func List(dir string, on Platform) ([]Package, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Standard,Imports,Error", "./...")
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GOOS="+on.OS, "GOARCH="+on.Arch, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages for %s/%s: %w: %s", on.OS, on.Arch, err, stderr.String())
	}
	return decodeList(bytes.NewReader(out))
}

// decodeList reads the go command's stream of JSON objects.
func decodeList(r io.Reader) ([]Package, error) {
	var pkgs []Package
	for dec := json.NewDecoder(r); ; {
		var p struct {
			ImportPath string
			Standard   bool
			Imports    []string
			Error      *struct{ Err string }
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode package list: %w", err)
		}
		pkg := Package{ImportPath: p.ImportPath, Standard: p.Standard, Imports: p.Imports}
		if p.Error != nil && !strings.Contains(p.Error.Err, "build constraints exclude all Go files") {
			pkg.Error = p.Error.Err
		}
		pkgs = append(pkgs, pkg)
	}
}
