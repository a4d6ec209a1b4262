package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/cache/archive"
	"lector/cache/dir"
)

func newSnapshotExport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "export HANDLE FILE.safetensors|FOLDER",
		Short: "Write a snapshot as one file, or as a folder that is a store",
		Long: "export writes a snapshot as one safetensors file that any program can open, when the name ends so, and otherwise\n" +
			"into a folder, which can be given to --store as it is. import takes both.",
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return a.snapshotExport(c.Context(), args[0], args[1]) },
	}
}

// tensorFile says that a name asks for the file form.
func tensorFile(path string) bool { return strings.HasSuffix(path, ".safetensors") }

func (a *app) snapshotExport(ctx context.Context, name, path string) error {
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	found, err := a.find(ctx, space, name)
	if err != nil {
		return fmt.Errorf("export snapshot: %w", err)
	}
	if tensorFile(path) {
		err = exportFile(ctx, space, found.Digest, path)
	} else {
		err = exportFolder(ctx, space, found.Digest, path)
	}
	if err != nil {
		return fmt.Errorf("export %s to %s: %w", name, path, err)
	}
	a.note("%s: %d tokens, %s%s", path, found.manifest.Tokens, size(found.manifest.Bytes), alone(found.manifest.TokensOnly()))
	if err := found.Handle.Valid(time.Now()); err != nil {
		a.note("its handle expired on %s: other programs can read it, and no import takes it", found.Handle.Expires.UTC().Format(time.DateTime))
	}
	return nil
}

// alone says of a snapshot that it has no state.
func alone(tokensOnly bool) string {
	if tokensOnly {
		return ", token ids alone: a resume reads them again"
	}
	return ""
}

// exportFile writes beside the name and renames, so that the name is never of half a file.
func exportFile(ctx context.Context, space *cache.Space, d cache.Digest, path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".export-*")
	if errors.Is(err, fs.ErrNotExist) {
		return badInput(fmt.Errorf("there is no folder %s", filepath.Dir(path)))
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = archive.WriteFile(ctx, space, d, f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func exportFolder(ctx context.Context, space *cache.Space, d cache.Digest, path string) (err error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return badInput(errors.New("it is a file, and one whose name does not end in .safetensors is not written over: name a folder"))
	}
	folder, err := dir.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	_, err = archive.Copy(ctx, space, &cache.Space{Store: folder, Tenant: space.Tenant}, d)
	return err
}

func newSnapshotImport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE.safetensors|FOLDER",
		Short: "Take in what export wrote, after checking every byte; print the handles",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.snapshotImport(c.Context(), args[0]) },
	}
}

func (a *app) snapshotImport(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return badInput(fmt.Errorf("import snapshot: there is no file or folder %s", path))
	}
	if err != nil {
		return badInput(fmt.Errorf("import snapshot: %w", err))
	}
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := probeStore(ctx, space.Store); err != nil {
		return err
	}
	if info.IsDir() {
		err = a.importFolder(ctx, space, path)
	} else {
		err = a.importFile(ctx, space, path)
	}
	if err != nil {
		return fmt.Errorf("import %s: %w", path, err)
	}
	return nil
}

func (a *app) importFile(ctx context.Context, space *cache.Space, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return badInput(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	from, d, err := archive.ReadFile(f, info.Size())
	if err != nil {
		return err
	}
	return a.importOne(ctx, from, space, d)
}

// isStore says that some tenant has handles in a folder.
func isStore(path string) (bool, error) {
	tenants, err := os.ReadDir(path)
	for _, t := range tenants {
		if info, err := os.Stat(filepath.Join(path, t.Name(), "handles")); err == nil && info.IsDir() {
			return true, nil
		}
	}
	return false, err
}

// importFolder takes every handle of every tenant of a folder: who exported it chose them.
func (a *app) importFolder(ctx context.Context, space *cache.Space, path string) (err error) {
	if is, err := isStore(path); err != nil || !is { // opening one that is none would make it one
		return badInput(cmp.Or(err, errors.New("the folder holds no exported snapshot")))
	}
	folder, err := dir.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	n := 0
	for o, err := range folder.List(ctx, "") {
		if err != nil {
			return err
		}
		part := strings.Split(o.Name, "/")
		if len(part) != 3 || part[1] != "handles" {
			continue
		}
		d, err := cache.ParseDigest(part[2])
		if err != nil {
			continue
		}
		n++
		if err := a.importOne(ctx, &cache.Space{Store: folder, Tenant: part[0]}, space, d); err != nil {
			return err
		}
	}
	if n == 0 {
		return badInput(errors.New("the folder holds no exported snapshot"))
	}
	return nil
}

func (a *app) importOne(ctx context.Context, from, to *cache.Space, d cache.Digest) error {
	h, err := from.Handle(ctx, d)
	if err != nil {
		return err
	}
	if err := h.Valid(time.Now()); err != nil {
		return err
	}
	c, err := archive.Copy(ctx, from, to, d)
	if err != nil {
		return err
	}
	a.note("%d tokens, %s in %d blobs, all checked%s", c.Tokens, size(c.Bytes), c.Blobs, alone(c.TokensOnly))
	_, err = fmt.Fprintln(a.out, cache.HandleName(c.Handle))
	return err
}
