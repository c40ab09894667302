package testnet

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// forWait is how long For waits for another run of the same tests.
const forWait = 5 * time.Minute

// users has, for each prefix, the test of this process whose networks have it, and how many are open.
var users = struct {
	sync.Mutex
	of map[string]user
}{of: map[string]user{}}

type user struct {
	test string
	open int
}

// use makes the prefix the test's. False is that another test of this process has it; a test and its subtests may replace
// their own network.
func use(t testing.TB, prefix string) bool {
	users.Lock()
	defer users.Unlock()
	test, _, _ := strings.Cut(t.Name(), "/")
	u := users.of[prefix]
	if u.open > 0 && u.test != test {
		return false
	}
	users.of[prefix] = user{test, u.open + 1}
	return true
}

func unuse(prefix string) {
	users.Lock()
	defer users.Unlock()
	u := users.of[prefix]
	u.open--
	users.of[prefix] = u
}

// For returns a network for a test, closed when the test ends. Without root the test is skipped,
// unless MILLRACE_MUST_NETNS is set, as CI does: there a missing right is a failure. With -short it
// is skipped, too. prefix must be the package's own: tests of several packages run at once. For
// waits while another process, or another test of this one, has a network with the same prefix.
func For(t testing.TB, prefix string) *Net {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no network namespaces")
	}
	n, err := attempt(t, prefix)
	for end := time.Now().Add(forWait); errors.Is(err, ErrInUse) && time.Now().Before(end); n, err = attempt(t, prefix) {
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
		unuse(prefix)
	})
	return n
}

// attempt makes a network unless the prefix is in use.
func attempt(t testing.TB, prefix string) (*Net, error) {
	if !use(t, prefix) {
		return nil, ErrInUse
	}
	n, err := New(prefix)
	if err != nil {
		unuse(prefix)
	}
	return n, err
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
