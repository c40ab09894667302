package config

import (
	"slices"
	"testing"
)

// Each entry of restartKeys names a key of the configuration, so that Diff marks what NeedsRestart names.
func TestRestartKeysAreKeysOfTheConfiguration(t *testing.T) {
	b := newConfig()
	b.Devices, b.Table.Size, b.Table.HalfOpen, b.Table.Fragments = []Device{{Name: "gw0"}}, 7, 7, 7
	b.Sync, b.SNATPorts.First, b.CPUs.List, b.ExtraProcessor, b.Engine = &Sync{Index: 1}, 7, []int{7}, true, "auto"
	b.Spin, b.Admin.Socket, b.Limits.Clients = 7, "x", 7
	b.Inspection.Flows, b.Inspection.Memory = 7, 7
	b.KernelFlows, b.Table.KernelFlows = KernelFlowsOn, 7
	b.Defence = &Defence{Devices: []string{"eth0"}}
	b.Listeners, b.Stack, b.ProxyLoops, b.Network.Routes = []Listener{{Name: "web"}}, StackDevices, 7, []NetworkRoute{{}}
	var marked []string
	for _, c := range Diff(newConfig(), b) {
		switch {
		case c.Restart && c.Listener != "":
			marked = append(marked, "listeners")
		case c.Restart:
			marked = append(marked, c.Key)
		}
	}
	for _, r := range restartKeys {
		if !r.differs(newConfig(), b) || !slices.Contains(marked, r.key) {
			t.Errorf("%s: differs %v; marked are %q", r.part, r.differs(newConfig(), b), marked)
		}
	}
	if n := NeedsRestart(b, b); n != "" {
		t.Errorf("%q differs from itself", n)
	}
}
