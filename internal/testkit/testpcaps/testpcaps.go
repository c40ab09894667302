// Package testpcaps has the captures that tests of several packages read: traffic recorded between
// two namespaces of one machine by record.sh, and what derivepcaps makes of it. Its README.md lists them.
package testpcaps

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/testkit/checkout"
)

// Corpus is the environment variable that names a folder of more captures.
const Corpus = "MILLRACE_PCAPS"

// Files returns the captures of the repository and, where there are any, those of the folder that
// MILLRACE_PCAPS names. The test's log says when there were none of those.
func Files(t testing.TB) []string {
	t.Helper()
	dir, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	files := captures(dir)
	if len(files) == 0 {
		t.Fatalf("no captures in %s", dir)
	}
	more := os.Getenv(Corpus)
	if more == "" {
		t.Logf("%d captures of the repository; %s can name a folder of more", len(files), Corpus)
		return files
	}
	found := captures(more)
	if len(found) == 0 {
		t.Fatalf("%s: no captures in %s", Corpus, more)
	}
	return append(files, found...)
}

// File returns the path of a capture of the repository.
func File(t testing.TB, name string) string {
	t.Helper()
	dir, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// Dir returns the folder of the repository's captures.
func Dir() (string, error) {
	root, err := checkout.Root()
	return filepath.Join(root, "internal", "testkit", "testpcaps", "testdata"), err
}

func captures(dir string) []string {
	var all []string
	for _, ext := range []string{"*.pcap", "*.pcapng"} {
		found, _ := filepath.Glob(filepath.Join(dir, ext)) // fails for a wrong pattern only
		all = append(all, found...)
	}
	return all
}
