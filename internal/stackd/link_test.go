package stackd

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interfaces go down and come up again under a running host, which says so and goes on.
func TestLinkStates(t *testing.T) {
	s := newSite(t, "links", siteConfig{})
	is := func(want string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); s.d.Addrs()[0].Link != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the interface is %s, not %s", s.d.Addrs()[0].Link, want)
			}
		}
	}
	is("up")
	for _, c := range []struct {
		ours      bool
		dev, set  string
		afterward string
	}{
		{true, "st0", "down", "down"},
		{true, "st0", "up", "up"},
		{false, "eth0", "down", "no carrier"},
		{false, "eth0", "up", "up"},
	} {
		ns := s.linux
		if c.ours {
			ns = s.ours
		}
		if out, err := ns.Run("ip", "link", "set", c.dev, c.set); err != nil {
			t.Fatal(err, out)
		}
		is(c.afterward)
	}
	if out, err := s.linux.Run("ping", "-c", "3", "-i", "0.2", host4); err != nil {
		t.Error(err, out)
	}

	var index int
	for i := range s.d.links.name {
		index = i
	}
	u := netlink.LinkUpdate{Link: &netlink.Device{}}
	u.Index, u.Header.Type = int32(index), unix.RTM_DELLINK
	s.d.linkChanged(s.d.links, &u)
	is("gone")
	u.Header.Type = unix.RTM_NEWLINK // another one, as it may be
	s.d.linkChanged(s.d.links, &u)
	is("gone")
}

func TestThreshold(t *testing.T) {
	for _, c := range [][2]uint64{{0, 0}, {14480, 14480}, {1<<32 - 2, 1<<32 - 2}, {1<<32 - 1, 0}} {
		if got := threshold(c[0]); got != c[1] {
			t.Errorf("threshold(%d) = %d", c[0], got)
		}
	}
}
