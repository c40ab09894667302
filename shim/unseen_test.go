package shim

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
)

// unseen runs a program of testdata/unseen.c on a tier, and returns the node's counters.
func unseen(t *testing.T, rings bool, what string) Stats {
	t.Helper()
	b := newBed(t, nil)
	cmd := b.program(t, rings, append([]string{what}, b.serve(t, echoAll)...)...)
	path := filepath.Join(compiled.dir, "unseen")
	if out, err := exec.Command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-o", path, "testdata/unseen.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd.Path = path
	err := cmd.Run()
	var code *exec.ExitError
	if errors.As(err, &code) && code.ExitCode() == 77 {
		t.Skip("this machine has no such calls")
	}
	if err != nil {
		t.Error(err)
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
	return b.Stats()
}

// TestCallsByNumber: syscall(2) is served as the functions of libc.
func TestCallsByNumber(t *testing.T) {
	tiers(t, func(t *testing.T, rings bool) {
		if n := unseen(t, rings, "numbers"); (n.Rings > 0) != rings || (n.Moved > 0) != rings || n.Violations != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// TestUring: a process that makes an instance of io_uring has no rings from then on, and loses nothing.
func TestUring(t *testing.T) {
	tiers(t, func(t *testing.T, rings bool) {
		n := unseen(t, rings, "uring")
		if want := map[bool]uint64{true: 1}[rings]; n.Rings != want || n.Moved != want || n.Violations != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// TestCallsBesideTheLibrary: what a program writes past its rings ends the connection. Nobody takes it for doorbells.
func TestCallsBesideTheLibrary(t *testing.T) {
	if n := unseen(t, true, "rude"); n.Violations != 1 {
		t.Errorf("%+v", n)
	}
}
