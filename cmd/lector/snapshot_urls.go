package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lector/cache"
	"lector/cache/s3"
)

func newSnapshotURLs(a *app) *cobra.Command {
	var asJSON bool
	life := time.Duration(0)
	c := &cobra.Command{
		Use:   "urls HANDLE",
		Short: "Print URLs that read a snapshot's objects from its bucket without credentials, for a time",
		Long: "urls prints one presigned URL for each object that a handle needs: the handle, its manifest and every blob of its state, in\n" +
			"the order of the manifest. Any HTTP client can GET them until they expire; the bytes have the digest beside the URL. They end\n" +
			"sooner where the credentials that sign them do. Whoever has them reads the state and the token ids: keep them secret.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.snapshotURLs(c.Context(), args[0], life, asJSON) },
	}
	c.Flags().DurationVar(&life, "expires", time.Hour, "`time` that the URLs are good for, seven days at most")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a URL")
	return c
}

// remoteObject is an object of a snapshot as urls prints it.
type remoteObject struct {
	Object  string       `json:"object"` // "handle", "manifest" or "blob"
	Digest  cache.Digest `json:"digest"` // of the bytes that the URL reads
	Bytes   int64        `json:"bytes"`
	URL     string       `json:"url"`
	Header  http.Header  `json:"header,omitempty"` // to send along
	Expires time.Time    `json:"expires"`

	name string // in the store
}

// presigner is a store that makes URLs of its objects.
type presigner interface {
	PresignGet(ctx context.Context, name string, life time.Duration) (s3.Presigned, error)
}

func (a *app) snapshotURLs(ctx context.Context, name string, life time.Duration, asJSON bool) error {
	store, space, err := a.openSpace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	signer, ok := store.(presigner)
	switch {
	case !ok:
		return badInput(errors.New("print URLs: the store is a folder, and only a bucket has URLs: give --store s3://..., or carry the snapshot with lector snapshot export"))
	case a.trust.sealKey != "":
		return badInput(errors.New("print URLs: the store is sealed, and what its URLs read is encrypted: carry the snapshot with lector snapshot export"))
	}
	found, err := a.find(ctx, space, name)
	if err != nil {
		return fmt.Errorf("print URLs: %w", err)
	}
	objects, err := remoteObjects(ctx, space, found)
	if err != nil {
		return fmt.Errorf("print URLs of %s: %w", found.Name(), err)
	}
	expires := time.Now().Add(life).UTC().Truncate(time.Second)
	for i := range objects {
		o := &objects[i]
		p, err := signer.PresignGet(ctx, o.name, life)
		if err != nil {
			return badInput(fmt.Errorf("print URLs: %w: choose another --expires", err))
		}
		o.URL, o.Header, o.Expires = p.URL, p.Header, expires
	}
	return a.printURLs(objects, asJSON)
}

// remoteObjects lists what a handle needs, each object once. One that is missing, or lies in the bucket in another form
// than its digest names, is an error.
func remoteObjects(ctx context.Context, space *cache.Space, s stored) ([]remoteObject, error) {
	tenant := space.TenantName()
	out := []remoteObject{
		{Object: "handle", Digest: s.Digest, name: tenant + "/handles/" + s.Digest.String()},
		{Object: "manifest", Digest: s.Handle.Manifest, name: tenant + "/manifests/" + s.Handle.Manifest.String()},
	}
	seen := map[cache.Digest]bool{}
	for _, p := range s.manifest.Pieces() {
		if !seen[p.Blob.Digest] {
			seen[p.Blob.Digest] = true
			out = append(out, remoteObject{Object: "blob", Digest: p.Blob.Digest, name: tenant + "/blobs/" + p.Blob.Digest.String()})
		}
	}
	for i := range out {
		o := &out[i]
		var compressed bool
		var err error
		if o.Bytes, compressed, err = storedSize(ctx, space.Store, o.name); err != nil {
			return nil, err
		}
		if compressed {
			return nil, badInput(fmt.Errorf("%s lies compressed in the bucket, and a URL would read the compressed bytes: carry the snapshot with lector snapshot export", o.name))
		}
	}
	return out, nil
}

func (a *app) printURLs(objects []remoteObject, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false) // a URL is to be copied as it is
		for _, o := range objects {
			if err := enc.Encode(o); err != nil {
				return fmt.Errorf("print URLs: %w", err)
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, o := range objects {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", o.Object, o.Digest, o.Bytes, o.URL)
		for key := range o.Header {
			fmt.Fprintf(t, "\t\t\t%s: %s\n", key, o.Header.Get(key))
		}
	}
	return t.Flush()
}
