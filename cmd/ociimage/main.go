// Command ociimage writes the container image of the gateway: an OCI image layout (version 1.1) in a tar file, with one image for each
// architecture. Images have the program, its file, a user, and the root certificates of Mozilla; nothing else. The same input gives
// the same bytes.
//
//	go -C cmd run ./ociimage -version 1.2.3 -epoch 1700000000 -out image.tar amd64=dist/stage/amd64 arm64=dist/stage/arm64
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

// run is main with its arguments.
func run(args []string) error {
	fs := flag.NewFlagSet("ociimage", flag.ContinueOnError)
	out := fs.String("out", "", "the tar file to write")
	version := fs.String("version", "", "version of the program, and tag of the image")
	revision := fs.String("revision", "", "commit that the program was built from")
	program := fs.String("program", "millrace", "name of the program below usr/bin of a folder")
	epoch := fs.Int64("epoch", 0, "time of all files, in seconds since 1970")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *out == "" || *version == "" || fs.NArg() == 0 {
		return errors.New("-out, -version and at least one ARCH=FOLDER are required")
	}
	im := image{program: *program, version: *version, revision: *revision, created: time.Unix(*epoch, 0).UTC()}
	for _, a := range fs.Args() {
		arch, stage, ok := strings.Cut(a, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=FOLDER", a)
		}
		if err := im.add(arch, stage); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	return errors.Join(im.write(f), f.Close())
}
