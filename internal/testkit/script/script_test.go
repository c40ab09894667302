package script

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestScripts runs every script in testdata.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.pkt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".pkt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(name, string(text))
			if err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			if err := s.Run(&log); err != nil {
				t.Errorf("%v\n%s", err, log.String())
			}
		})
	}
}
