// Package packed reads files that the build compressed before they became part of the program.
package packed

import (
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
)

// Read returns the content of the file name.gz. The error is that of fs.ReadFile where the build did not make the file.
func Read(files fs.FS, name string) ([]byte, error) {
	f, err := files.Open(name + ".gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s.gz: %w", name, err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s.gz: %w", name, err)
	}
	return b, nil
}
