// Command layoutgen writes the layout of shared rings for Go, C and CUDA from layout.txt. It runs by go generate in shim/ring.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// outputs are the generated files, relative to shim/ring.
var outputs = []struct {
	path  string
	write func(*layout) ([]byte, error)
}{
	{"layout.go", (*layout).golang},
	{"../preload/ring.h", (*layout).c},
	{"../../gpukern/cuda/sharedring.h", (*layout).cuda},
}

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "layoutgen:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	l, err := read(filepath.Join(dir, "layout.txt"))
	if err != nil {
		return err
	}
	for _, o := range outputs {
		b, err := o.write(l)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, o.path), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
