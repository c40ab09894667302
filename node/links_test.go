package node

import (
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestALinkThatWasReplacedIsGoneForGood(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip("no loopback interface here:", err)
	}
	want := LinkDown
	if lo.Flags&net.FlagUp != 0 {
		want = LinkUp
	}
	nl := openHandle(t)
	l := Link{Name: "lo", index: lo.Index}
	if got := l.look(nl).State; got != want {
		t.Errorf("state %d, want %d", got, want)
	}
	l.index++
	if l.State = l.look(nl).State; l.State != LinkGone {
		t.Errorf("a stranger of the same name has state %d", l.State)
	}
	l.index--
	if got := l.look(nl).State; got != LinkGone {
		t.Errorf("what was gone has state %d", got)
	}
	if got := (&Link{Name: "absent0", index: 1 << 20}).look(nl).State; got != LinkGone {
		t.Errorf("an absent interface has state %d", got)
	}
}

func TestALinkFollowsItsInterfaceAsFarAsThatIsOurs(t *testing.T) {
	all, err := net.Interfaces()
	i := slices.IndexFunc(all, func(in net.Interface) bool { return len(in.HardwareAddr) == 6 })
	if err != nil || i < 0 {
		t.Skip("no interface with a link address here:", err)
	}
	nl := openHandle(t)
	in, ours := all[i], [6]byte{2, 0, 0, 0, 0, 7}
	theirs := [6]byte(in.HardwareAddr)
	for name, c := range map[string]struct {
		is  Link
		mac [6]byte
		mtu int
	}{
		"the interface":         {Link{most: 1 << 20}, theirs, in.MTU},
		"Linux's end of a TAP":  {Link{most: 1 << 20, peer: true}, ours, in.MTU},
		"larger than frames":    {Link{most: in.MTU - 1}, theirs, in.MTU - 1},
		"a driver without MTUs": {Link{}, theirs, 1},
	} {
		c.is.Name, c.is.index, c.is.MAC, c.is.MTU = in.Name, in.Index, ours, 1
		if got := c.is.look(nl); got.MAC != c.mac || got.MTU != c.mtu {
			t.Errorf("%s: %+v, want %x and %d", name, got, c.mac, c.mtu)
		}
	}
}

// openHandle returns a handle for the network namespace of the test.
func openHandle(t *testing.T) *netlink.Handle {
	t.Helper()
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Skip("netlink cannot be used here:", err)
	}
	t.Cleanup(nl.Close)
	return nl
}
