package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"lector/cache"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the platform and the numeric class",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			be, err := a.openCPU()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "lector %s %s %s/%s, class %s, format %d\n",
				version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, be.Class(), cache.FormatMajor)
			return err
		},
	}
}
