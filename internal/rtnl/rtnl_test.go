package rtnl

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

func TestAnInterruptedDumpIsMadeAgain(t *testing.T) {
	for _, cause := range []error{netlink.ErrDumpInterrupted, unix.EINTR, fmt.Errorf("dump: %w", unix.ENOBUFS)} {
		calls := 0
		got, err := Dump(func() ([]int, error) {
			if calls++; calls < 4 {
				return []int{1}, cause // a part
			}
			return []int{1, 2}, nil
		})
		if err != nil || len(got) != 2 || calls != 4 {
			t.Errorf("%v: %v, %v after %d calls", cause, got, err, calls)
		}
	}
}

func TestAPartIsNeverTheAnswer(t *testing.T) {
	calls := 0
	got, err := Dump(func() ([]int, error) { calls++; return []int{1}, netlink.ErrDumpInterrupted })
	if got != nil || !errors.Is(err, netlink.ErrDumpInterrupted) || calls != dumpTries {
		t.Errorf("%v, %v after %d calls", got, err, calls)
	}
	calls = 0
	if got, err := Dump(func() (int, error) { calls++; return 1, unix.EPERM }); got != 0 || !errors.Is(err, unix.EPERM) || calls != 1 {
		t.Errorf("another error: %v, %v after %d calls", got, err, calls)
	}
}

// The pauses between tries grow to a limit, so that all of them take a fifth of a second.
func TestThePausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		_, _ = Dump(func() (int, error) { at = append(at, time.Now()); return 0, unix.EINTR })
		var got []time.Duration
		for i := range at[1:] {
			got = append(got, at[i+1].Sub(at[i])/time.Millisecond)
		}
		if want := []time.Duration{1, 2, 4, 8, 16, 32, 32, 32, 32}; !slices.Equal(got, want) {
			t.Errorf("pauses of %d ms, want %d", got, want)
		}
	})
}

func TestAddrsAreThoseOfTheNamespace(t *testing.T) {
	n := testnet.For(t, "mr-rtnl")
	a, b := n.Namespace("a"), n.Namespace("b")
	for _, err := range []error{n.Link(a, "eth0", b, "eth0"), a.Up("eth0", "198.18.2.1/24", "2001:db8:2::1/64")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got, broadcasts map[netip.Addr]bool
	if err := a.Do(func() (err error) { got, broadcasts, err = Addrs(); return err }); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"198.18.2.1", "2001:db8:2::1", "127.0.0.1", "::1"} {
		if !got[netip.MustParseAddr(s)] {
			t.Errorf("%s is missing in %v", s, got)
		}
	}
	if got[netip.MustParseAddr("198.18.2.2")] {
		t.Error("an address that nobody has")
	}
	if !broadcasts[netip.MustParseAddr("198.18.2.255")] {
		t.Errorf("the directed broadcast is missing in %v", broadcasts)
	}
	if out, err := a.Run("ip", "addr", "add", "198.18.3.1/24", "broadcast", "198.18.3.127", "dev", "eth0"); err != nil {
		t.Fatal(out, err)
	}
	if err := a.Do(func() (err error) { got, broadcasts, err = Addrs(); return err }); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"198.18.3.127", "198.18.3.255"} {
		if !broadcasts[netip.MustParseAddr(s)] || got[netip.MustParseAddr(s)] {
			t.Errorf("%s is no broadcast in %v", s, broadcasts)
		}
	}
}

func TestDirectedBroadcasts(t *testing.T) {
	for p, want := range map[string]string{
		"198.18.0.1/24": "198.18.0.255", "198.18.0.9/30": "198.18.0.11", "198.18.0.0/15": "198.19.255.255", "0.0.0.0/0": "255.255.255.255",
		"198.18.0.1/31": "", "198.18.0.1/32": "", "2001:db8::1/64": "",
	} {
		got, ok := Broadcast(netip.MustParsePrefix(p))
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s: %v, %v, want %q", p, got, ok, want)
		}
	}
}

func TestWhatMayPassIsTriedAgain(t *testing.T) {
	for _, err := range []error{netlink.ErrDumpInterrupted, unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS} {
		if !interrupted(err) {
			t.Errorf("%v is final", err)
		}
	}
	if interrupted(unix.EPERM) || interrupted(nil) {
		t.Error("EPERM, or no error, is tried again")
	}
}
