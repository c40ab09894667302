package testpcaps

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreThoseOfTheRepositoryAndOfTheCorpus(t *testing.T) {
	t.Setenv(Corpus, "")
	own := Files(t)
	var size int64
	for _, f := range own {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if len(own) < 20 || size > 6<<20 {
		t.Errorf("%d captures of %d bytes, want 20 or more of at most 6 MiB", len(own), size)
	}
	more := t.TempDir()
	for _, name := range []string{"a.pcap", "b.pcapng", "c.txt"} {
		if err := os.WriteFile(filepath.Join(more, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(Corpus, more)
	if all := Files(t); len(all) != len(own)+2 {
		t.Errorf("%d captures with a corpus of two, %d without", len(all), len(own))
	}
}
