package node

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
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

// TestWrongChecksumsAreLogged has packets dropped for that reason, and for another one.
func TestWrongChecksumsAreLogged(t *testing.T) {
	for why, want := range map[packet.Verdict]bool{packet.DropL4Checksum: true, packet.DropNoRoute: false} {
		var log bytes.Buffer
		w := new(wires)
		n, err := Open(Config{Loops: 1, OpenDevice: w.open, Devices: []Device{{Name: "m0"}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		_ = n.Add(Service{Name: "a", Handlers: handlers(1, why)})
		now := time.Now()
		n.watchChecksums(now)
		w.send(t, make([]byte, 60), make([]byte, 60), make([]byte, 60), make([]byte, 60)) // later the wire is the loop's
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
		if got := strings.Contains(log.String(), "level=WARN msg=checksum device=m0 dropped=4") && strings.Contains(log.String(), "ethtool -K PEER tx off"); got != want {
			t.Errorf("%v: log %q", why, &log)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}
