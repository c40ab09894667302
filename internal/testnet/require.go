package testnet

import (
	"os"
	"os/exec"
	"testing"
)

// For returns a network for a test, closed when the test ends. Without root the test is skipped,
// unless MILLRACE_MUST_NETNS is set, as CI does: there a missing right is a failure. prefix must be
// the test's own: tests of several packages run at once.
func For(t testing.TB, prefix string) *Net {
	t.Helper()
	n, err := New(prefix)
	if err != nil {
		if os.Getenv("MILLRACE_MUST_NETNS") != "" {
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
