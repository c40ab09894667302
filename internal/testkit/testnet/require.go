package testnet

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

// forWait is how long For waits for another run of the same tests.
const forWait = 2 * time.Minute

// For returns a network for a test, closed when the test ends. Without root the test is skipped,
// unless MILLRACE_MUST_NETNS is set, as CI does: there a missing right is a failure. prefix must be
// the package's own: tests of several packages run at once. For waits while another process runs
// tests with the same prefix.
func For(t testing.TB, prefix string) *Net {
	t.Helper()
	n, err := New(prefix)
	for end := time.Now().Add(forWait); errors.Is(err, ErrInUse) && time.Now().Before(end); n, err = New(prefix) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		if errors.Is(err, ErrInUse) || os.Getenv("MILLRACE_MUST_NETNS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close the test network: %v", err)
		}
	})
	return n
}

// Program skips the test, or fails it under MILLRACE_MUST_NETNS, when a program it needs is not
// installed.
func Program(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("MILLRACE_MUST_NETNS") != "" {
			t.Fatalf("%s is not installed: run `make deps`", name)
		}
		t.Skipf("%s is not installed: run `make deps`", name)
	}
}
