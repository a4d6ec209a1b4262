package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/cache/archive"
	"lector/cache/seal"
)

// ring reads the keys of --seal-key, the sealing one first; none without it.
func (a *app) ring(ctx context.Context) ([]seal.Key, error) {
	if a.trust.sealKey == "" {
		if a.trust.sealIdentity != "" {
			return nil, badInput(errors.New("--seal-identity opens the keys of --seal-key, and there is none"))
		}
		return nil, nil
	}
	text, err := readRing("--seal-key", a.trust.sealKey)
	if err != nil {
		return nil, err
	}
	w, err := a.sealWrapper()
	if err != nil {
		return nil, err
	}
	keys, err := seal.ParseRing(ctx, text, w)
	if err != nil {
		hint := ""
		if w == nil && strings.Contains(text, "lector-wrapped-") {
			hint = ": give the age identity or master key file with --seal-identity"
		}
		return nil, badInput(fmt.Errorf("%s: %w%s", a.trust.sealKey, err, hint))
	}
	return keys, nil
}

// readRing reads a ring's text. One with a plain key in it is a secret; one of wrapped keys alone need not be.
func readRing(what, path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", badInput(fmt.Errorf("%s: %w", what, err))
	}
	if bytes.Contains(b, []byte("lector-seal-")) {
		if _, err := secret(what, path); err != nil {
			return "", err
		}
	}
	return string(b), nil
}

// sealWrapper reads what opens wrapped keys; nil without --seal-identity.
func (a *app) sealWrapper() (seal.Wrapper, error) {
	if a.trust.sealIdentity == "" {
		return nil, nil
	}
	b, err := secret("--seal-identity", a.trust.sealIdentity)
	if err != nil {
		return nil, err
	}
	w, err := seal.ParseWrapper(string(b))
	if err != nil {
		return nil, badInput(fmt.Errorf("%s: %w", a.trust.sealIdentity, err))
	}
	return w, nil
}

// sealed wraps a store with the tenant's keys, and refuses a sealed tenant without them.
func (a *app) sealed(ctx context.Context, store cache.Store) (cache.Store, error) {
	keys, err := a.ring(ctx)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		if err := seal.Check(ctx, store, a.tenant); err != nil {
			return nil, sealHint(err, "give its file with --seal-key")
		}
		return store, nil
	}
	s, err := seal.Open(ctx, store, a.tenant, keys)
	if err != nil {
		return nil, sealHint(err, "add the line of one to "+a.trust.sealKey)
	}
	return s, nil
}

// sealHint says what to do about a key that was not given.
func sealHint(err error, what string) error {
	if errors.Is(err, cache.ErrSealed) {
		return badInput(fmt.Errorf("%w: %s", err, what))
	}
	return err
}

// salts are those of the tenant: the first of what is stored from now on, then those of older keys.
func (a *app) salts(ctx context.Context) ([][]byte, error) {
	own, err := a.tenantSalt()
	if err != nil {
		return nil, err
	}
	keys, err := a.ring(ctx)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return [][]byte{own}, nil
	}
	out := make([][]byte, len(keys))
	for i, k := range keys {
		out[i] = k.Salt(own)
	}
	return out, nil
}

// newest refuses a snapshot of an older key: what is made of it would be of two, and lost with the older one.
func (a *app) newest(ctx context.Context, s stored) error {
	salts, err := a.salts(ctx)
	if err != nil || len(salts) == 1 {
		return err
	}
	id := s.manifest.Identity
	if cache.NewIdentity(id.Fields, id.Class, id.Grid, salts[0]).Model != id.Model {
		return fmt.Errorf("handle %s is sealed with an older key: store it anew with lector snapshot reseal, then name that handle", s.Name())
	}
	return nil
}

func newSnapshotReseal(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "reseal HANDLE...",
		Short: "Store snapshots anew under the newest key of --seal-key; print the new handles",
		Long: "reseal stores the state of a handle anew under the first key of --seal-key, and prints a handle for it. When nothing that an\n" +
			"older key sealed is wanted any more, take its line out of the file.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.reseal(c.Context(), args) },
	}
}

func (a *app) reseal(ctx context.Context, names []string) error {
	if a.trust.sealKey == "" {
		return badInput(errors.New("reseal needs --seal-key FILE: lector snapshot seal-key makes one"))
	}
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	salts, err := a.salts(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		d, _, err := a.findTrusted(ctx, space, name)
		if err != nil {
			return err
		}
		c, err := archive.Resalt(ctx, space, space, d, salts[0])
		if err != nil {
			return fmt.Errorf("reseal %s: %w", name, err)
		}
		if err := a.vouch(ctx, space, c.Handle); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(a.out, cache.HandleName(c.Handle)); err != nil {
			return err
		}
	}
	return nil
}

// sealKeyFlags are what a new seal key says.
type sealKeyFlags struct {
	rotate     bool
	recipients []string
}

func newSnapshotSealKey(a *app) *cobra.Command {
	var f sealKeyFlags
	c := &cobra.Command{
		Use:   "seal-key FILE",
		Short: "Make a key that encrypts a tenant's snapshots, and print its id",
		Long: "seal-key writes a new key to FILE, for --seal-key: what is stored with it is encrypted, names too. Without the key nothing\n" +
			"of it can be read again, so keep a copy in a safe place. With --rotate FILE is an existing one, and the new key goes in front:\n" +
			"it seals from then on, and older ones open what they sealed. snapshot reseal stores a snapshot anew under the new key.\n" +
			"With --recipient, or with a master key as --seal-identity, FILE holds the key wrapped, and --seal-identity opens it.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.makeSealKey(c.Context(), args[0], f) },
	}
	c.Flags().BoolVar(&f.rotate, "rotate", false, "put the new key in front of those in FILE")
	c.Flags().StringArrayVar(&f.recipients, "recipient", nil, "age `recipient` that can open the key, such as age1...; may be given again")
	return c
}

func (a *app) makeSealKey(ctx context.Context, path string, f sealKeyFlags) error {
	key, err := seal.Generate(rand.Reader)
	if err != nil {
		return err
	}
	line, err := a.sealLine(ctx, key, f.recipients)
	if err != nil {
		return err
	}
	if f.rotate {
		old, err := readRing("add a seal key", path)
		if err != nil {
			return err
		}
		err = replaceSecret(path, line+"\n"+old)
		if err != nil {
			return err
		}
	} else if err := newSecret(path, line); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, key.ID())
	return err
}

// sealLine is the line of a key in its file: wrapped where somebody is named who can open it.
func (a *app) sealLine(ctx context.Context, key seal.Key, recipients []string) (string, error) {
	if len(recipients) > 0 {
		w, err := seal.AgeRecipients(strings.Join(recipients, "\n"))
		if err != nil {
			return "", badInput(fmt.Errorf("--recipient: %w", err))
		}
		return seal.WrappedLine(ctx, key, w)
	}
	w, err := a.sealWrapper()
	if err != nil || w == nil {
		return key.Line(), err
	}
	if _, ok := w.(seal.Age); ok {
		return "", badInput(errors.New("an age identity opens keys; name who can open the new one with --recipient"))
	}
	return seal.WrappedLine(ctx, key, w)
}

func newSnapshotMasterKey() *cobra.Command {
	return &cobra.Command{
		Use:   "master-key FILE",
		Short: "Make a key that wraps seal keys, for --seal-identity",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return newSecret(args[0], seal.MasterLine(seal.NewSecret()))
		},
	}
}

// newSecret writes one line to a file that must not be there, for its owner alone.
func newSecret(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return badInput(fmt.Errorf("%s exists already, and a key is never written over: name another", path))
	}
	if err != nil {
		return badInput(err)
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Sync(), f.Close())
}

// replaceSecret writes beside the file and renames, so that no moment has half a ring.
func replaceSecret(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".seal-*") // 0600
	if err != nil {
		return badInput(err)
	}
	_, err = io.WriteString(f, text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}
