package secretfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyTheOwnerReads(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for _, text := range []string{"first", "second"} {
		if err := Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		b, err := Read(path)
		if err != nil || string(b) != text {
			t.Errorf("%q, %v", b, err)
		}
	}
	info, _ := os.Stat(path)
	if list, _ := os.ReadDir(dir); info.Mode().Perm() != 0o600 || len(list) != 1 {
		t.Errorf("mode %v, %d files", info.Mode(), len(list))
	}
	for mode, want := range map[os.FileMode]error{0o640: nil, 0o604: ErrPermissions, 0o666: ErrPermissions} {
		_ = os.Chmod(path, mode)
		if _, err := Read(path); !errors.Is(err, want) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	_ = os.Truncate(path, maxSize+1)
	_ = os.Chmod(path, 0o600)
	if _, err := Read(path); err == nil {
		t.Error("a file of any size is read")
	}
	// A file that cannot take its place leaves nothing behind.
	taken := filepath.Join(dir, "folder", "inside")
	_ = os.MkdirAll(taken, 0o700)
	if err := Write(filepath.Dir(taken), nil); err == nil {
		t.Error("a folder was replaced")
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 {
		t.Errorf("%d files are left", len(list))
	}
}
