package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"lector/cache"
	"lector/cache/dir"
	"lector/cache/s3"
	"lector/engine"
)

// benchStore is a store to measure, and a plain way to copy bytes to where it is.
type benchStore interface {
	name() string
	store() cache.Store
	// write copies the pieces, as durably as the store does.
	write(ctx context.Context, pieces [][]byte) error
	// read reads back what was copied last, into the beginning of buf.
	read(ctx context.Context, buf []byte) error
	// drop forgets spaces and the copy.
	drop(ctx context.Context, spaces ...*cache.Space) error
	Close() error
}

// openStores opens a folder, and a bucket where there is a server for one.
func (s *snapshotBench) openStores(ctx context.Context) error {
	d, err := dir.Open(filepath.Join(s.temp, "store"))
	if err != nil {
		return err
	}
	s.stores = append(s.stores, &folderBench{d: d, folder: s.temp, plain: filepath.Join(s.temp, "plain")})
	if err := makeUsed(filepath.Join(s.temp, "store")); err != nil {
		return err
	}
	if s.f.gateway == off {
		return nil
	}
	program, err := findGateway(s.f.gateway)
	if err != nil {
		s.note("no S3 server to measure: %v", err)
		return nil
	}
	b, err := startGateway(ctx, program, filepath.Join(s.temp, "buckets"))
	if err != nil {
		return err
	}
	s.stores = append(s.stores, b)
	return nil
}

// folderBench is a folder store.
type folderBench struct {
	d      *dir.Store
	folder string
	plain  string
}

func (*folderBench) name() string         { return "dir" }
func (b *folderBench) store() cache.Store { return b.d }
func (b *folderBench) Close() error       { return b.d.Close() }

// write makes one file that would survive a power cut.
func (b *folderBench) write(_ context.Context, pieces [][]byte) error {
	f, err := os.Create(b.plain)
	if err != nil {
		return err
	}
	for _, p := range pieces {
		if _, err = f.Write(p); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	folder, err := os.Open(b.folder)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func (b *folderBench) read(_ context.Context, buf []byte) error {
	f, err := os.Open(b.plain)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(f, buf)
	if errors.Is(err, io.ErrUnexpectedEOF) { // an earlier copy was longer
		err = nil
	}
	return errors.Join(err, f.Close())
}

func (b *folderBench) drop(context.Context, ...*cache.Space) error {
	return errors.Join(os.Remove(b.plain), dropFiles(filepath.Join(b.folder, "store")))
}

// dropFiles deletes what was stored in a folder store, several times as fast as the store does it by name. The store may be
// at its own files meanwhile.
func dropFiles(store string) error {
	return filepath.WalkDir(store, func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != usedMark {
			err = os.Remove(file)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// The tenants that states are stored under: all at once, and cell by cell.
const (
	benchSave  = "save"
	benchCells = "cells"
)

// usedMark is an object that keeps its folder there when all others are deleted.
const usedMark = "used"

// makeUsed gives a folder store the folders that one in use has: for every kind of object, one for each beginning of a digest.
func makeUsed(store string) error {
	if _, err := os.Stat(filepath.Join(store, benchCells)); err == nil {
		return nil // it is in use already
	}
	for _, tenant := range []string{benchSave, benchCells} {
		for _, kind := range []string{"blobs", "keep", "nodes", "manifests", "handles"} {
			for i := range 256 {
				folder := filepath.Join(store, tenant, kind, fmt.Sprintf("%02x", i))
				if err := os.MkdirAll(folder, 0o700); err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(folder, usedMark), []byte{0}, 0o600); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// dropStates deletes what was stored in the spaces.
func dropStates(ctx context.Context, store cache.Store, spaces ...*cache.Space) error {
	for _, s := range spaces {
		for o, err := range store.List(ctx, s.TenantName()+"/") {
			if err == nil && path.Base(o.Name) != usedMark {
				err = store.Delete(ctx, o.Name)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// bucketBench is a bucket of a server on this machine.
type bucketBench struct {
	*s3.Store
	server *exec.Cmd
	said   bytes.Buffer
	sizes  []int64 // of the objects of the last copy
}

func (*bucketBench) name() string         { return "S3" }
func (b *bucketBench) store() cache.Store { return b.Store }

// benchParallel is how many objects of a copy move at once, as many as a save moves.
const benchParallel = 4

// write puts every piece as an object.
func (b *bucketBench) write(ctx context.Context, pieces [][]byte) error {
	b.sizes = nil
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(benchParallel)
	for i, p := range pieces {
		b.sizes = append(b.sizes, int64(len(p)))
		g.Go(func() error {
			return b.Put(ctx, fmt.Sprint("plain/", i), bytes.NewReader(p), int64(len(p)), cache.Replace)
		})
	}
	return g.Wait()
}

// gather copies the bytes of the regions into pieces as a save has them: of rows and of the recurrent state apart, and
// none longer than a blob.
func gather(regions []engine.Region) (pieces [][]byte) {
	for _, kind := range []engine.Kind{engine.Rows, engine.Fixed} {
		var all []byte
		for _, r := range regions {
			if r.Kind == kind {
				all = append(all, r.Data...)
			}
		}
		for len(all) > 0 {
			n := min(len(all), cache.MaxBlob)
			pieces = append(pieces, all[:n])
			all = all[n:]
		}
	}
	return pieces
}

func (b *bucketBench) read(ctx context.Context, buf []byte) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(benchParallel)
	for i, n := range b.sizes {
		part := buf[:n]
		buf = buf[n:]
		g.Go(func() error {
			r, err := b.Get(ctx, fmt.Sprint("plain/", i), 0, -1)
			if err != nil {
				return err
			}
			_, err = io.ReadFull(r, part)
			return errors.Join(err, r.Close())
		})
	}
	return g.Wait()
}

func (b *bucketBench) drop(ctx context.Context, spaces ...*cache.Space) error {
	return dropStates(ctx, b, spaces...)
}

// Close ends the server.
func (b *bucketBench) Close() error {
	err := b.Store.Close()
	if b.server.Process != nil {
		b.server.Process.Kill()
		b.server.Wait() // it was killed: that is no error
	}
	return err
}

// findGateway looks for the S3 server on the path, and where the test command installs it.
func findGateway(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	if caches, cerr := os.UserCacheDir(); cerr == nil {
		if found, _ := filepath.Glob(filepath.Join(caches, "lector", "tools", "versitygw-*", "versitygw")); len(found) > 0 && program == "versitygw" {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%w: go install github.com/versity/versitygw/cmd/versitygw@latest, or name it with --gateway", err)
}

// startGateway starts the server over a folder and waits until it answers.
func startGateway(ctx context.Context, program, folder string) (_ *bucketBench, err error) {
	const bucket, access, secret = "bench", "bench", "bench-secret"
	if err := os.MkdirAll(filepath.Join(folder, bucket), 0o700); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	b := &bucketBench{}
	b.server = exec.Command(program, "--quiet", "--access", access, "--secret", secret, "--port", address, "--keep-alive", "posix", folder)
	b.server.Stdout, b.server.Stderr = &b.said, &b.said
	if b.Store, err = s3.Open(ctx, s3.Options{Bucket: bucket, Endpoint: "http://" + address, PathStyle: true, AccessKey: access, SecretKey: secret}); err != nil {
		return nil, err
	}
	if err := b.server.Start(); err != nil {
		return nil, fmt.Errorf("start the S3 server: %w", err)
	}
	for range 100 {
		if err = b.Probe(ctx); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the S3 server %s does not serve: %w: %.200s", program, err, b.said.Bytes()), b.Close())
	}
	return b, nil
}
