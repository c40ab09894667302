package regfile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(path("file"), []byte("text"), 0o600), os.Symlink("file", path("link")), unix.Mkfifo(path("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range []string{"file", "link"} {
		if text, err := Read(path(name), 3); err != nil || string(text) != "tex" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for name, kind := range map[string]string{path("pipe"): "a pipe", path("socket"): "a socket", dir: "a directory", "/dev/zero": "a device"} {
			_, err := Read(name, 3)
			pe := new(fs.PathError)
			if !errors.Is(err, ErrNotRegular) || !errors.As(err, &pe) || pe.Path != name || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := Read(path("absent"), 3); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an absent file: %v", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("an open waits")
	}
}
