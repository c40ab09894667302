// Package checkout finds the files of the repository for its tests and benchmarks.
package checkout

import (
	"errors"
	"os"
	"path/filepath"
)

// landmark is a file that only the root of the repository has.
const landmark = "packet/desc.h"

// Root returns the root of the repository around the working folder. Tests run in the folder of their
// package; the path that a binary remembers of its source is of no use, since -trimpath shortens it.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, landmark)); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("run it inside of the repository")
		}
		dir = up
	}
}
