package daemon

import (
	"net"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway"
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

func TestAMissingInterfaceIsNamedBesideThoseThereAre(t *testing.T) {
	err := findInterfaces([]gateway.Device{{Name: "lo", Driver: "auto"}, {Name: "absent0", Driver: "auto"}})
	if err == nil || !strings.Contains(err.Error(), `"absent0"`) || !strings.Contains(err.Error(), "lo") {
		t.Errorf("got %v", err)
	}
	if err := findInterfaces([]gateway.Device{{Name: "absent0", Driver: "tap"}}); err != nil {
		t.Errorf("a TAP device is made when it is missing: %v", err)
	}
}
