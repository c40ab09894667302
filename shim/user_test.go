package shim

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDescriptorLimit: a user gets no more descriptors of the node than its share, others go on, and all is given back.
func TestDescriptorLimit(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Everyone, c.Limits.Descriptors = true, 7 })
	b.distrust("token")
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
	b.distrust("token")
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
