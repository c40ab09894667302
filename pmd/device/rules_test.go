package device_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
)

func TestRulesTakeEffectAtOpen(t *testing.T) {
	ns := site(t)
	for _, name := range []device.Driver{device.AFXDP, device.AFPacket} {
		err := open(t, ns, 2, device.Config{Driver: name, Rules: []pmd.Rule{{}}}, func(*device.Device) {})
		if err == nil {
			t.Errorf("%s: opened with a rule without an address", name)
		}
	}
}

func TestAFPacketHidesWhatRulesNameAndNeverEverything(t *testing.T) {
	ns := site(t)
	promiscuous := func() bool {
		out, err := ns.Run("ip", "-d", "link", "show", "eth0")
		return err == nil && !strings.Contains(out, "promiscuity 0")
	}
	for _, all := range []bool{false, true} {
		err := open(t, ns, 2, device.Config{Driver: device.AFPacket, All: all}, func(d *device.Device) {
			want := "hidden from the kernel"
			if all {
				want = "seen by the kernel too"
			}
			if g := d.Queues[0].Info().Negotiated; !strings.Contains(g, want) {
				t.Errorf("all %v: granted %q, want %q", all, g, want)
			}
			if promiscuous() != all {
				t.Errorf("all %v, promiscuous %v", all, promiscuous())
			}
			rule := pmd.Rule{Addr: netip.MustParseAddr("198.18.0.10"), Proto: 6, PortLo: 80}
			if err := d.Steer(rule); (err != nil) != all {
				t.Errorf("all %v, steer: %v", all, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTAPMakesItsInterface(t *testing.T) {
	ns := site(t)
	err := ns.Do(func() error {
		arena, pools, err := device.NewArena(2, device.Config{Name: "mr1"})
		if err != nil {
			return err
		}
		defer arena.Close()
		d, err := device.Open(device.Config{Name: "mr1", Driver: device.TAP, Pools: pools})
		if err != nil {
			return err
		}
		if d.Driver != device.TAP || len(d.Queues) != 2 || d.Queues[1].Info().Device != "mr1" || d.Steer(pmd.Rule{}) != nil {
			t.Errorf("%+v", d)
		}
		return errors.Join(d.Close(), ring.Audit(arena, pools[0], pools[1]))
	})
	if err != nil {
		t.Error(err)
	}
}
