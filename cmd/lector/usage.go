package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// misused is an error in how a command was called, with where to read how it is.
func misused(c *cobra.Command, err error) error {
	return badInput(fmt.Errorf("%w (see '%s --help')", err, c.CommandPath()))
}

// plainFlag says what a number or a time of a flag can be, where the library tells which function of its own refused it.
func plainFlag(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) {
		return err
	}
	if invalid.GetFlag().Value.Type() == "duration" {
		return fmt.Errorf("invalid argument %q for \"--%s\" flag: it is a time such as 90s, 30m or 24h", invalid.GetValue(), invalid.GetFlag().Name)
	}
	if !errors.As(err, &number) {
		return err
	}
	kind := strings.TrimSuffix(invalid.GetFlag().Value.Type(), "Slice")
	what, ok := map[string]string{"bool": "true or false", "float64": "a number", "uint": "a whole number of at least 0", "uint64": "a whole number of at least 0"}[kind]
	if !ok {
		what = "a whole number"
	}
	if errors.Is(number, strconv.ErrRange) {
		what += ", and this one is too large"
	}
	return fmt.Errorf("invalid argument %q for \"--%s\" flag: it is %s", invalid.GetValue(), invalid.GetFlag().Name, what)
}

// plainArguments says what a command takes, where the library only counts, or calls an argument an unknown command of
// a command that has none.
func plainArguments(c *cobra.Command, args []string, err error) error {
	if c.HasSubCommands() || !regexp.MustCompile(`^(accepts|requires|unknown command) `).MatchString(err.Error()) {
		return err
	}
	takes := strings.TrimSpace(strings.TrimPrefix(c.Use, c.Name()))
	if takes == "" {
		return fmt.Errorf("%s takes flags alone, no argument %q", c.CommandPath(), args[0])
	}
	got := "none"
	if len(args) > 0 {
		got = strings.Trim(fmt.Sprintf("%q", args), "[]")
	}
	return fmt.Errorf("%s takes %s, and got %s", c.CommandPath(), takes, got)
}
