package main

import (
	"context"
	"errors"
	"strings"

	"lector/cache"
	"lector/engine"
)

// Exit codes, as scripts see them.
const (
	exitOK          = 0
	exitFailed      = 1   // the work failed, or a comparison did not hold
	exitInput       = 2   // the input is at fault: nothing was done
	exitInterrupted = 130 // stopped by a signal; the same command goes on
)

// inputError marks an error that the caller's input is to blame for.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

func badInput(err error) error {
	if err == nil {
		return nil
	}
	return inputError{err}
}

// silent is an error whose story has been told already.
type silent struct{ error }

func (e silent) Unwrap() error { return e.error }

// exitCode maps an error to what the shell sees.
func exitCode(err error) int {
	var input inputError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &input):
		return exitInput
	}
	for _, fault := range []error{
		engine.ErrEmpty, engine.ErrToken, engine.ErrTooLong, engine.ErrMemory, engine.ErrNumeric,
		cache.ErrNotFound, cache.ErrCorrupt, cache.ErrIncompatible, cache.ErrExpired, cache.ErrName, cache.ErrSealed,
	} {
		if errors.Is(err, fault) {
			return exitInput
		}
	}
	return exitFailed
}

// oneLine keeps an error on one line of the terminal.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
