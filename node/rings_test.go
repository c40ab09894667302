package node

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd/device"
)

// The longest rings are halved until their frames fit a part of the memory, and that is logged.
func TestRingsFitTheMemory(t *testing.T) {
	for name, c := range map[string]struct {
		available uint64
		loops     int
		rings     []int
		want      []int
	}{
		"enough":                {1 << 30, 1, []int{32768, 0}, []int{32768, 0}},
		"not known":             {0, 64, []int{32768}, []int{32768}},
		"half":                  {511 << 20, 1, []int{32768}, []int{16384}},
		"just enough":           {512 << 20, 1, []int{32768}, []int{32768}},
		"by loops":              {512 << 20, 4, []int{32768}, []int{8192}},
		"the longest first":     {512 << 20, 1, []int{4096, 32768}, []int{4096, 16384}},
		"the default counts":    {64 << 20, 1, []int{0, 0}, []int{0, 0}},
		"none below the least":  {1, 1, []int{32768, 1024}, []int{device.MinRing, device.MinRing}},
		"the default is halved": {32 << 20, 1, []int{0, 0}, []int{1024, 1024}},
	} {
		var log testnet.Log
		n := &Node{log: slog.New(slog.NewTextHandler(&log, nil)), cfg: Config{Loops: c.loops}}
		for _, r := range c.rings {
			n.cfg.Devices = append(n.cfg.Devices, Device{Name: "m0", Ring: r})
		}
		n.fitRings(c.available)
		changed := 0
		for i, d := range n.cfg.Devices {
			if d.Ring != c.want[i] {
				t.Errorf("%s: ring %d of device %d, want %d", name, d.Ring, i, c.want[i])
			}
			if d.Ring != c.rings[i] {
				changed++
			}
		}
		if got := strings.Count(log.String(), "msg=ring"); got != changed {
			t.Errorf("%s: %d records for %d changes", name, got, changed)
		}
	}
	if availableMemory() == 0 {
		t.Error("the memory of this machine is not known")
	}
}
