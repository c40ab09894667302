package shim

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStaleFoldersAreRemoved: what a killed node has left goes at the next start, and nothing else.
func TestStaleFoldersAreRemoved(t *testing.T) {
	in := t.TempDir()
	// leave makes a folder as a registrar does, with sockets that nothing listens on.
	leave := func(name string, mode os.FileMode) string {
		t.Helper()
		dir := filepath.Join(in, name)
		var l *net.UnixListener
		err := error(nil)
		if err = errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err == nil {
			l, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "1")})
		}
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	leave("millrace-shim-1", 0o700)
	leave("millrace-shim-test-2", 0o700)
	leave("millrace-shim-3", 0o755)
	file := leave("millrace-shim-4", 0o700)
	held := leave("millrace-shim-5", 0o700)
	keep := []string{"millrace-shim-3", "millrace-shim-4", "millrace-shim-5", "millrace-shim-6", "millrace-shim-7", "millrace-shim-8", "millrace-shim-test-2"}
	if err := errors.Join(os.WriteFile(filepath.Join(file, "notes"), nil, 0o600), os.Mkdir(filepath.Join(in, "millrace-shim-6"), 0o700)); err != nil {
		t.Fatal(err)
	}
	other := leave("millrace-shim-7", 0o700)
	if os.Geteuid() == 0 {
		if err := os.Chown(other, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	} else {
		keep = slices.Delete(keep, 4, 5)
	}
	listening := filepath.Join(in, "millrace-shim-8")
	if err := os.Mkdir(listening, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(listening, "1"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := os.Open(held)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir, own, err := makeFolder(in)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	removeStale(in)
	entries, err := os.ReadDir(in)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := append(keep, filepath.Base(dir))
	slices.Sort(want)
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("%v are left, want %v", names, want)
	}
}

// TestARegistrarHoldsItsFolder until it is closed.
func TestARegistrarHoldsItsFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r, err := newRegistrar()
	if err != nil {
		t.Fatal(err)
	}
	removeUnheld(r.dir)
	if _, err := os.Stat(filepath.Join(r.dir, "1")); err != nil {
		t.Error(err)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// TestFoldersOfNodesThatStartTogether: a node that looks whether a folder is stale does not make the start of another one fail.
func TestFoldersOfNodesThatStartTogether(t *testing.T) {
	in := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				dir, held, err := makeFolder(in)
				if err != nil {
					t.Error(err)
					return
				}
				_ = os.Remove(dir)
				_ = held.Close()
			}
		})
	}
	all.Wait()
}
