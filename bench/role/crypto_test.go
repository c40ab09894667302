package role

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCrypto opens the file of each cipher, whose results both forms must have, and one with a wrong result.
func TestCrypto(t *testing.T) {
	path := filepath.Join(t.TempDir(), "packets")
	for what, name := range Cryptos {
		if err := WriteCrypto(path, what, 300); err != nil {
			t.Fatal(err)
		}
		for _, as := range []string{"engine", "standard"} {
			w, err := openCrypto(roleOptions{as: as, args: []string{path}})
			if err != nil {
				t.Fatalf("%s, %s: %v", name, as, err)
			}
			if err := w.step(); err != nil {
				t.Errorf("%s, %s: %v", name, as, err)
			}
			if counts, _ := w.counts(); counts["bytes"] != 300*cryptoPackets {
				t.Errorf("%s, %s: %v", name, as, counts)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)-1] ^= 1
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openCrypto(roleOptions{args: []string{path}}); err == nil {
			t.Errorf("%s: a wrong result is not found", name)
		}
		if err := os.WriteFile(path, text[:100], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openCrypto(roleOptions{args: []string{path}}); err == nil {
			t.Errorf("%s: half of a file is read", name)
		}
	}
}
