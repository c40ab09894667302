package node

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
)

// losing is a driver that reports losses and receives nothing.
type losing struct {
	pmd.Driver
	lost pmd.Stats
}

func (l *losing) Info() pmd.Info {
	i := l.Driver.Info()
	i.Stats.Add(l.lost)
	return i
}

// openLosing opens a node on such a device.
func openLosing(t *testing.T, c Config, lost pmd.Stats) (*Node, *losing) {
	t.Helper()
	l := &losing{lost: lost}
	w := new(wires)
	c.Loops, c.Devices = 1, []Device{{Name: "m0", Ring: c.Devices[0].Ring}}
	c.OpenDevice = func(d Device, pools []*ring.Pool) (*device.Device, error) {
		dev, err := w.open(d, pools)
		if err == nil {
			l.Driver, dev.Queues[0] = dev.Queues[0], l
		}
		return dev, err
	}
	n, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, l
}

// What a driver refused is in both sides of the sum, beside what the loops counted.
func TestTheBalanceHasWhatADriverRefused(t *testing.T) {
	n, _ := openLosing(t, Config{Devices: []Device{{}}}, pmd.Stats{RxInvalid: 7, RxMissed: 3})
	if err := n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropRule)}); err != nil {
		t.Fatal(err)
	}
	c := n.Counters()
	if c.Received != 7 || c.Dropped[DropRxInvalid] != 7 || len(c.Dropped) != 1 {
		t.Errorf("%+v", c)
	}
	if got, want := c.Balance(), "received 7 = forwarded 0 + delivered 0 + dropped 7 (rx_invalid 7)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.Received, c.Dropped["rule"] = 9, 2
	if got := c.Balance(); !strings.HasPrefix(got, "received 9 = ") {
		t.Errorf("%q", got)
	}
}

// A loss is logged at once, later ones once a minute, each with what was lost since and the remedy.
func TestLossesAreLoggedWithTheRemedy(t *testing.T) {
	var log bytes.Buffer
	n, l := openLosing(t, Config{Devices: []Device{{Ring: 1024}}, Log: slog.New(slog.NewTextHandler(&log, nil))}, pmd.Stats{})
	start := time.Now()
	for _, s := range []struct {
		at      time.Duration
		missed  uint64
		invalid uint64
		want    []string
	}{
		{0, 0, 0, nil},
		{time.Second, 5, 0, []string{"rx missed", "packets=5", "remedy=\"set ring of the device to 2048 (now 1024)"}},
		{2 * time.Second, 9, 2, []string{"rx invalid", "packets=2", "gso_max_size"}},
		{lossQuiet, 9, 2, nil},
		{lossQuiet + time.Second, 12, 2, []string{"rx missed", "packets=7", "total=12"}},
		{3 * lossQuiet, 12, 2, nil},
	} {
		log.Reset()
		l.lost = pmd.Stats{RxMissed: s.missed, RxInvalid: s.invalid}
		n.watchLosses(start.Add(s.at))
		got := log.String()
		if lines := strings.Count(got, "\n"); lines != min(len(s.want), 1) {
			t.Errorf("after %s: %q", s.at, got)
		}
		for _, w := range s.want {
			if !strings.Contains(got, w) {
				t.Errorf("after %s: %q lacks %q", s.at, got, w)
			}
		}
	}
}

// With the longest ring, and with a TAP device, the remedy is another one.
func TestRemediesForMissedPackets(t *testing.T) {
	n := &Node{cfg: Config{Devices: []Device{{Name: "a", Ring: device.MaxRing}, {Name: "b"}, {Name: "c"}}}}
	none := func() error { return errors.New("unused") }
	n.devices = []*device.Device{device.New(device.AFXDP, nil, none), device.New(device.TAP, nil, none), device.New(device.AFPacket, nil, none)}
	for i, want := range []string{"give the loop", "ip link set b txqueuelen N", "set ring of the device to 4096 (now 2048)"} {
		if got := n.missedRemedy(i); !strings.HasPrefix(got, want) {
			t.Errorf("device %d: %q", i, got)
		}
	}
}
