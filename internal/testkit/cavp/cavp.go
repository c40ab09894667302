// Package cavp reads the test vectors of NIST's Cryptographic Algorithm Validation Program, for tests of every form and back end of an
// algorithm. A part of each file is in testdata; MILLRACE_CAVP names a folder with the whole files (`make cavp`).
package cavp

import (
	"bufio"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/checkout"
)

// Record is one vector: its fields, and those of its section and of the key that it belongs to.
type Record map[string]string

// Whole reports whether the whole files are read.
func Whole() bool { return os.Getenv("MILLRACE_CAVP") != "" }

// results are the fields of which each vector has one: blocks without are about all that follow in the section.
var results = []string{"MD", "Mac", "Tag", "S", "R"}

// Records returns the vectors of a file.
func Records(t testing.TB, name string) (all []Record) {
	t.Helper()
	dir := os.Getenv("MILLRACE_CAVP")
	if dir == "" {
		root, err := checkout.Root()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, "internal", "testkit", "cavp", "testdata")
	}
	in, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	section, block, inSection := Record{}, Record{}, false
	end := func() {
		if len(block) == 0 {
			return
		}
		vector := false
		for _, r := range results {
			_, has := block[r]
			vector = vector || has
		}
		if !vector { // a key
			for k, v := range block {
				section[k] = v
			}
		} else {
			for k, v := range section {
				if _, has := block[k]; !has {
					block[k] = v
				}
			}
			all = append(all, block)
		}
		block = Record{}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		header := strings.HasPrefix(line, "[")
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case line == "":
			end()
			continue
		case header && !inSection:
			end()
			section = Record{}
		}
		inSection = header
		key, value, found := strings.Cut(strings.Trim(line, "[]"), "=")
		switch key = strings.TrimSpace(key); {
		case header && !found:
			section["section"] = key
		case header:
			section[key] = strings.TrimSpace(value)
		default:
			block[key] = strings.TrimSpace(value)
		}
	}
	end()
	if err := lines.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%s: %d vectors, %v", name, len(all), err)
	}
	return all
}

// Bytes returns a field of hexadecimal digits; without it, or with an empty one, nothing.
func (r Record) Bytes(t testing.TB, field string) []byte {
	t.Helper()
	b, err := hex.DecodeString(r[field])
	if err != nil {
		t.Fatalf("%s: %v", field, err)
	}
	return b
}
