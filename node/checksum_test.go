package node

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// TestSuspectsOfWrongChecksums has counters of two devices after a number of seconds each.
func TestSuspectsOfWrongChecksums(t *testing.T) {
	type step struct {
		at      int // seconds
		dropped uint64
		rx      [2]uint64
		want    []int
	}
	for name, steps := range map[string][]step{
		"SYNs and some ARP":          {{1, 1, [2]uint64{2, 0}, nil}, {3, 2, [2]uint64{3, 0}, nil}, {7, 3, [2]uint64{5, 0}, []int{0}}},
		"exactly half":               {{1, 3, [2]uint64{6, 0}, []int{0}}},
		"less than half":             {{1, 3, [2]uint64{7, 0}, nil}},
		"only drops":                 {{1, 3, [2]uint64{0, 3}, []int{1}}},
		"too few":                    {{1, 2, [2]uint64{2, 0}, nil}},
		"beside a device that works": {{1, 5, [2]uint64{5000, 5}, []int{1}}},
		"too slow":                   {{9, 2, [2]uint64{2, 0}, nil}, {10, 2, [2]uint64{2, 0}, nil}, {12, 4, [2]uint64{4, 0}, nil}},
		"the window begins anew":     {{10, 1, [2]uint64{1000, 0}, nil}, {12, 4, [2]uint64{1003, 0}, []int{0}}},
		"once an hour": {
			{1, 3, [2]uint64{3, 0}, []int{0}},
			{2, 9, [2]uint64{9, 0}, nil},
			{3599, 10, [2]uint64{10, 0}, nil},
			{3600, 20, [2]uint64{20, 0}, nil},
			{3601, 30, [2]uint64{30, 0}, []int{0}},
			{3602, 40, [2]uint64{40, 0}, nil},
		},
		"each device for itself": {{1, 3, [2]uint64{3, 0}, []int{0}}, {2, 6, [2]uint64{3, 3}, []int{1}}},
	} {
		w, start := new(checksumWatch), time.Now()
		w.suspects(start, 0, []uint64{0, 0})
		for _, s := range steps {
			got, _ := w.suspects(start.Add(time.Duration(s.at)*time.Second), s.dropped, s.rx[:])
			if !slices.Equal(got, s.want) {
				t.Errorf("%s, after %d s: %v, want %v", name, s.at, got, s.want)
			}
		}
	}
	w := new(checksumWatch)
	if got, _ := w.suspects(time.Now(), 9, []uint64{9}); got != nil {
		t.Error("what was before the first look counts")
	}
}

// datagram is a frame of UDP whose checksum is wrong, or is right.
func datagram(right bool) []byte {
	f := make([]byte, 60)
	f[12] = 0x08
	ip := wire.IPv4(f[14:60])
	copy(ip, []byte{0x45, 0, 0, 46, 0, 0, 0, 0, 64, wire.ProtoUDP, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2})
	ip[:20].FillChecksum()
	copy(f[34:], []byte{0, 7, 0, 7, 0, 26, 1, 1})
	if right {
		f[40], f[41] = 0, 0
		wire.UDP(f[34:60]).FillChecksum(ip.Pseudo())
	}
	return f
}

// TestWrongChecksumsAreLogged whatever the service does with the packets: a gateway may forward them. It runs on a wire, where none
// is completed.
func TestWrongChecksumsAreLogged(t *testing.T) {
	for _, c := range []struct {
		verdict     packet.Verdict
		right, want bool
	}{{packet.DropL4Checksum, false, true}, {packet.DropNoRoute, false, true}, {packet.DropNoRoute, true, false}} {
		var log bytes.Buffer
		w := new(wires)
		n, err := Open(Config{Loops: 1, OpenDevice: w.open, Ops: gpukern.OpChecksum, Devices: []Device{{Name: "m0"}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		_ = n.Add(Service{Name: "a", Handlers: handlers(1, c.verdict)})
		now := time.Now()
		n.watchChecksums(now)
		w.send(t, datagram(c.right), datagram(c.right), datagram(c.right), datagram(c.right)) // later the wire is the loop's
		done := make(chan error)
		go func() { done <- n.Run(t.Context()) }()
		for end := time.Now().Add(5 * time.Second); n.Counters().Received < 4 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		n.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		n.checksums = checksumWatch{warned: n.checksums.warned, since: now, rx: []uint64{0}}
		n.watchChecksums(now.Add(time.Second))
		if got := strings.Contains(log.String(), "level=WARN msg=checksum device=m0 packets=4") && strings.Contains(log.String(), "ethtool -K PEER tx off"); got != c.want {
			t.Errorf("%+v: log %q", c, &log)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}
