package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lector/cache"
	"lector/cache/sign"
	"lector/cache/tag"
)

// trust names the files that say who may compute a tenant's names, who vouches for handles, and who is believed.
type trust struct {
	salt, signKey, verifyKeys string
	sealKey, sealIdentity     string
}

// saltBytes is the size of a tenant's secret.
const saltBytes = 32

func (t *trust) flags(f *pflag.FlagSet) {
	f.StringVar(&t.salt, "salt", os.Getenv("LECTOR_SALT"), "`file` with the tenant's secret of 32 bytes: without it nobody can find the tenant's prefixes (default: $LECTOR_SALT, else none)")
	f.StringVar(&t.sealKey, "seal-key", os.Getenv("LECTOR_SEAL_KEY"), "`file` with the keys that encrypt the tenant's snapshots, the newest first (default: $LECTOR_SEAL_KEY, else they are not encrypted)")
	f.StringVar(&t.sealIdentity, "seal-identity", os.Getenv("LECTOR_SEAL_IDENTITY"), "`file` with the age identity or master key that opens wrapped keys of --seal-key (default: $LECTOR_SEAL_IDENTITY)")
	f.StringVar(&t.signKey, "sign-key", os.Getenv("LECTOR_SIGN_KEY"), "`file` with the key that signs new handles (default: $LECTOR_SIGN_KEY, else they are not signed)")
	f.StringVar(&t.verifyKeys, "verify-keys", os.Getenv("LECTOR_VERIFY_KEYS"), "`file` with public keys: only handles that one of them signed are used (default: $LECTOR_VERIFY_KEYS, else all are)")
}

// secret reads a file that only its owner may read; what says who names it.
func secret(what, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, badInput(fmt.Errorf("%s: %w", what, err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, badInput(fmt.Errorf("%s is a secret that others may read: chmod 600 it", path))
	}
	return io.ReadAll(io.LimitReader(f, 1<<12))
}

// tenantSalt reads --salt; nil without one.
func (a *app) tenantSalt() ([]byte, error) {
	if a.trust.salt == "" {
		return nil, nil
	}
	b, err := secret("--salt", a.trust.salt)
	if err == nil && len(b) != saltBytes {
		err = badInput(fmt.Errorf("salt %s has %d bytes, not %d: make one with head -c %d /dev/urandom", a.trust.salt, len(b), saltBytes, saltBytes))
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// vouch signs a stored handle with --sign-key, if there is one.
func (a *app) vouch(ctx context.Context, space *cache.Space, d cache.Digest) error {
	if a.trust.signKey == "" {
		return nil
	}
	b, err := secret("--sign-key", a.trust.signKey)
	if err != nil {
		return err
	}
	key, err := sign.ParseSecret(string(b))
	if err != nil {
		return badInput(fmt.Errorf("%s: %w", a.trust.signKey, err))
	}
	return sign.Sign(ctx, space, d, key)
}

// vouch signs the handle of a receipt, of one that was adopted too: who made it may have died before it was signed.
func (s *session) vouch(ctx context.Context, handle string) error {
	d, err := cache.ParseDigest(handle)
	if err != nil {
		return fmt.Errorf("read receipt: %w", err)
	}
	return s.app.vouch(ctx, s.space, d)
}

// trusted refuses a handle that no key of --verify-keys has signed, if there are such keys.
func (a *app) trusted(ctx context.Context, space *cache.Space, d cache.Digest) error {
	if a.trust.verifyKeys == "" {
		return nil
	}
	b, err := os.ReadFile(a.trust.verifyKeys)
	if err != nil {
		return badInput(fmt.Errorf("--verify-keys: %w", err))
	}
	keys, err := sign.ParsePublics(string(b))
	if err != nil {
		return badInput(fmt.Errorf("%s: %w", a.trust.verifyKeys, err))
	}
	_, err = sign.Verify(ctx, space, d, keys)
	if errors.Is(err, sign.ErrUnsigned) {
		return badInput(err)
	}
	return err
}

// findTrusted reads the handle that a person names, and refuses one that nobody who is believed has signed.
func (a *app) findTrusted(ctx context.Context, space *cache.Space, name string) (cache.Digest, cache.Handle, error) {
	d, h, err := tag.Find(ctx, space, name)
	if err != nil {
		return d, h, badInput(err)
	}
	return d, h, a.trusted(ctx, space, d)
}

func newSnapshotKey(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Make a key that signs handles, and print its public half",
		Long: "key writes a new signing key to FILE, for --sign-key, and prints the line that goes into the file of --verify-keys.\n" +
			"To change keys, put both lines there, sign with the new key, and take the old line out when its handles are signed anew.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.makeKey(args[0]) },
	}
}

func (a *app) makeKey(path string) error {
	key, err := sign.Generate(rand.Reader)
	if err != nil {
		return err
	}
	if err := newSecret(path, key.Line()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, key.Public().Line())
	return err
}

func newSnapshotSign(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "sign HANDLE...",
		Short: "Sign handles that are stored, with --sign-key",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.snapshotSign(c.Context(), args) },
	}
}

func (a *app) snapshotSign(ctx context.Context, names []string) error {
	if a.trust.signKey == "" {
		return badInput(errors.New("sign needs --sign-key FILE: lector snapshot key makes one"))
	}
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	for _, name := range names {
		d, _, err := tag.Find(ctx, space, name)
		if err != nil {
			return badInput(err)
		}
		if err := a.vouch(ctx, space, d); err != nil {
			return err
		}
	}
	return nil
}
