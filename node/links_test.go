package node

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
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
	l.index += 1 << 20
	if l.State = l.look(nl).State; l.State != LinkGone {
		t.Errorf("a stranger of the same name has state %d", l.State)
	}
	l.index -= 1 << 20
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

// TestALinkIsFollowedByItsIndex renames the interface of a device and back: packets go on all the while.
func TestALinkIsFollowedByItsIndex(t *testing.T) {
	n := testnet.For(t, "mr-rename")
	a, b := n.Namespace("a"), n.Namespace("b")
	if err := n.Link(a, "eth0", b, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Up("eth0"), b.Up("eth0")); err != nil {
		t.Fatal(err)
	}
	var nl *netlink.Handle
	var l Link
	if err := a.Do(func() (err error) {
		if nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		in, err := nl.LinkByName("eth0")
		if err == nil {
			l = Link{Name: "eth0", index: in.Attrs().Index, peer: true} // whose link address is of no interest
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer nl.Close()
	var log testnet.Log
	node := &Node{log: slog.New(slog.NewTextHandler(&log, nil))}
	reopens := false
	step := func(want LinkState, record string, command ...string) {
		t.Helper()
		if out, err := a.Run(command[0], command[1:]...); err != nil {
			t.Fatal(err, out)
		}
		now := l.look(nl)
		node.logLink(&l, &now, reopens)
		if l = now; l.State != want || !strings.HasSuffix(log.String(), record+"\n") {
			t.Errorf("%v: state %v, log\n%s", command, l.State, log.String())
		}
	}
	step(LinkUp, "device=eth0 renamed=other0", "ip", "link", "set", "eth0", "name", "other0")
	step(LinkDown, "device=eth0 state=down", "ip", "link", "set", "other0", "down")
	step(LinkUp, "device=eth0 state=up", "ip", "link", "set", "other0", "up")
	step(LinkUp, "device=eth0 renamed=eth0", "ip", "link", "set", "other0", "name", "eth0")
	step(LinkGone, `device=eth0 state=gone remedy="restart when the interface is back"`, "ip", "link", "del", "eth0")
	l.State, reopens = LinkUp, true
	step(LinkGone, `device=eth0 state=gone waiting="for an interface of this name"`, "true")
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
