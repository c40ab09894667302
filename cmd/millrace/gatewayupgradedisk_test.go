package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a small disk of its own, and returns its folder and a function that fills it: neither a byte nor a name has room then.
func smallDisk(t *testing.T) (dir string, fill func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,nr_inodes=32"); err != nil {
		t.Skipf("no disk of its own: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, func() {
		f, err := os.Create(filepath.Join(dir, "ballast"))
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if f.Close(); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			if err := os.Symlink("x", filepath.Join(dir, fmt.Sprint("name", i))); errors.Is(err, unix.ENOSPC) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAnUpgradeOnAFullDisk upgrades under load while the disk of the control socket, of the access log and of the folder for temporary
// files is full. The upgrade writes nothing there, so it works. Where the new process needs room, for a cache or a socket that the file
// adds, it is refused with exit code 1 and the reason, and the old one goes on.
func TestAnUpgradeOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	src := strings.Replace(upgradeConfig, "BACKEND", word(t, "one"), 1) + "access_log: {file: " + filepath.Join(dir, "access.log") + "}\n"
	s := newUpgradeSiteAt(t, filepath.Join(dir, "gw.sock"), src, "TMPDIR="+dir)
	more := filepath.Join(t.TempDir(), "more.yaml")
	text, err := os.ReadFile(s.file)
	if err == nil {
		err = os.WriteFile(more, []byte(strings.Replace(string(text), "admin: {socket: "+s.socket+"}", "admin: {socket: "+filepath.Join(dir, "other.sock")+"}", 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	fill()
	var l load
	l.run(fresh(s.addr, "one"))
	l.runKept(s.addr, "one")
	_, out, problem := tell(s.socket, exitFailure, "upgrade", "--config", more)
	t.Log(out)
	if problem != "" || !strings.Contains(out, "no space left on device") || !strings.Contains(out, "this gateway goes on") {
		t.Errorf("with a socket that has no room: %s, %q", problem, out)
	}
	if exited(s.first.Process.Pid) {
		t.Fatal("the gateway has ended")
	}
	s.upgrade()
	l.end(t, 100)
}
