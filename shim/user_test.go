package shim

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/programsocket"
)

// TestDescriptorLimit: a user gets no more descriptors of the node than its share, others go on, and all is given back.
func TestDescriptorLimit(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Everyone, c.Limits.Descriptors = true, 7 })
	b.distrust()
	_, token := b.another(70001)
	c, other := b.dial(t), b.as(t, token) // both channels are the process's
	names := func(c *client) syscall.Errno {
		return c.ask(request{op: opNames}, c.socket(unix.SOCK_STREAM, false).fd).errno
	}
	for i := range 5 {
		if errno := names(c); errno != 0 {
			t.Fatalf("socket %d: %v", i, errno)
		}
	}
	if errno := names(c); errno != syscall.EMFILE {
		t.Errorf("a socket more: %v", errno)
	}
	if _, err := Hello(b.cfg.Path); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("a channel more: %v", err)
	}
	mine := b.Stats().Users[0]
	if mine.Files != 7 || mine.Sockets != 5 || mine.Channels != 2 || mine.Limited != 2 {
		t.Errorf("%+v", mine)
	}
	if errno := names(other); errno != 0 {
		t.Errorf("another user: %v", errno)
	}
	most := b.mostFiles.Swap(b.files.Load())
	if errno := names(other); errno != syscall.ENFILE {
		t.Errorf("beyond the limit of all: %v", errno)
	}
	b.mostFiles.Store(most)
	if st := b.Stats(); st.Files != 8 || st.MayHave != int(most) {
		t.Errorf("%+v", st)
	}
	c.programs[0].close()
	until(t, "a descriptor is free", func() bool { return names(c) == 0 })
	for _, c := range []*client{c, other} {
		c.end()
	}
	until(t, "all is given back", func() bool { return b.Stats().Files == 0 })
}

// TestDescriptorsOfConnections: accepted connections take one each, those beyond are reset, and pairs take none.
func TestDescriptorsOfConnections(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Everyone, c.Limits.Descriptors = true, 3 })
	b.distrust()
	c := b.dial(t)
	server := c.socket(unix.SOCK_STREAM, false)
	local, err := server.listen("0.0.0.0:0", 4)
	if err != nil {
		t.Fatal(err)
	}
	b.dialNode(t, local.Port())
	q, _, err := server.accept()
	if err != nil {
		t.Fatal(err)
	}
	if n := b.Stats().Files; n != 3 {
		t.Errorf("%d descriptors for a channel, a listener and a connection", n)
	}
	b.dialNode(t, local.Port())
	until(t, "the second is reset", func() bool { return b.Stats().AcceptErrors == 1 })
	q.close()
	until(t, "it is given back", func() bool { return b.Stats().Files == 2 })
	for range 4 {
		p := c.socket(unix.SOCK_STREAM, false)
		if err := p.connect(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), local.Port()).String()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := server.accept(); err != nil {
			t.Fatal(err)
		}
	}
	if st := b.Stats(); st.Files != 2 || st.Paired != 4 {
		t.Errorf("with pairs: %+v", st)
	}
}

// TestRootLeavesDescriptors: users without limits leave some to others, and to the node itself.
func TestRootLeavesDescriptors(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	b.mostFiles.Store(17) // of which one is kept
	for range 15 {
		if r := c.ask(request{op: opNames}, c.socket(unix.SOCK_STREAM, false).fd); r.errno != 0 {
			t.Fatal(r.errno)
		}
	}
	if r := c.ask(request{op: opNames}, c.socket(unix.SOCK_STREAM, false).fd); r.errno != syscall.EMFILE {
		t.Errorf("beyond: %v", r.errno)
	}
}

// TestConnectsOfASecond: a user begins as many connections as the limit says, and no more.
func TestConnectsOfASecond(t *testing.T) {
	s := &Server{cfg: Config{Limits: Limits{Connects: 3}}}
	for range 5 { // a second may end meanwhile
		u := &user{second: time.Now().Unix()}
		var got [4]error
		for i := range got {
			got[i] = s.takeConnect(u)
		}
		if time.Now().Unix() != u.second || u.connects != len(got) {
			continue
		}
		if want := [4]error{3: syscall.EAGAIN}; got != want {
			t.Errorf("%v, want %v", got, want)
		}
		return
	}
	t.Skip("no second was long enough")
}

// TestAWatchThatFailsLeavesNothing behind in the watcher.
func TestAWatchThatFailsLeavesNothing(t *testing.T) {
	w, err := newWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if _, err := w.add(-1, 0, func(uint32) {}); err == nil || len(w.calls) != 0 {
		t.Errorf("%v, and %d calls are left", err, len(w.calls))
	}
}

// TestAFileIsNoServer: a server replaces the socket that one before has left, and no other file.
func TestAFileIsNoServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := programsocket.Listen(path, "programs"); err == nil {
		l.Close()
		t.Error("no error")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "kept" {
		t.Errorf("the file has %q, %v", b, err)
	}
}
