package daemon

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
)

func TestALinkThatWasReplacedIsGoneForGood(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip("no loopback interface here:", err)
	}
	want := linkDown
	if lo.Flags&net.FlagUp != 0 {
		want = linkUp
	}
	l := link{name: "lo", index: lo.Index}
	if got := l.look().state; got != want {
		t.Errorf("state %d, want %d", got, want)
	}
	l.index++
	if l.state = l.look().state; l.state != linkGone {
		t.Errorf("a stranger of the same name has state %d", l.state)
	}
	l.index--
	if got := l.look().state; got != linkGone {
		t.Errorf("what was gone has state %d", got)
	}
	if got := (&link{name: "absent0"}).look().state; got != linkGone {
		t.Errorf("an absent interface has state %d", got)
	}
}

func TestALinkFollowsItsInterfaceAsFarAsThatIsOurs(t *testing.T) {
	all, err := net.Interfaces()
	i := slices.IndexFunc(all, func(in net.Interface) bool { return len(in.HardwareAddr) == 6 })
	if err != nil || i < 0 {
		t.Skip("no interface with a link address here:", err)
	}
	in, ours := all[i], [6]byte{2, 0, 0, 0, 0, 7}
	theirs := [6]byte(in.HardwareAddr)
	for name, c := range map[string]struct {
		is  link
		mac [6]byte
		mtu int
	}{
		"the interface":         {link{most: 1 << 20}, theirs, in.MTU},
		"Linux's end of a TAP":  {link{most: 1 << 20, peer: true}, ours, in.MTU},
		"larger than frames":    {link{most: in.MTU - 1}, theirs, in.MTU - 1},
		"a driver without MTUs": {link{}, theirs, 1},
	} {
		c.is.name, c.is.index, c.is.mac, c.is.mtu = in.Name, in.Index, ours, 1
		if got := c.is.look(); got.mac != c.mac || got.mtu != c.mtu {
			t.Errorf("%s: %+v, want %x and %d", name, got, c.mac, c.mtu)
		}
	}
}

func TestAMissingInterfaceIsNamedBesideThoseThereAre(t *testing.T) {
	err := findInterfaces([]config.Device{{Name: "lo", Driver: "auto"}, {Name: "absent0", Driver: "auto"}})
	if err == nil || !strings.Contains(err.Error(), `"absent0"`) || !strings.Contains(err.Error(), "lo") {
		t.Errorf("got %v", err)
	}
	if err := findInterfaces([]config.Device{{Name: "absent0", Driver: "tap"}}); err != nil {
		t.Errorf("a TAP device is made when it is missing: %v", err)
	}
}
