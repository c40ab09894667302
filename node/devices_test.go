package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/stack"
)

// A failed reload restores what was asked for, which is not always what the devices can do.
func TestOffloadIsWhatWasAskedFor(t *testing.T) {
	n := &Node{}
	for _, whole := range []bool{true, false} {
		if done, err := n.SetOffload(whole, stack.GROAll); err != nil {
			t.Fatal(done, err)
		}
		if w, join := n.Offload(); w != whole || join != stack.GROAll {
			t.Errorf("asked for %v and GROAll: %v, %v", whole, w, join)
		}
	}
}

func TestAutomaticQueues(t *testing.T) {
	for name, c := range map[string]struct {
		count map[string]int
		want  int
		err   string
	}{
		"the same":           {count: map[string]int{"a": 4, "b": 4, "c": 4}, want: 4},
		"one of each":        {count: map[string]int{"a": 1, "b": 1, "c": 1}, want: 1},
		"the first has less": {count: map[string]int{"a": 2, "b": 4, "c": 2}, err: "a receives on 2 queues and b on more (`ethtool -L b combined 2`"},
		"the last has less":  {count: map[string]int{"a": 4, "b": 4, "c": 2}, err: "c receives on 2 queues and a on more (`ethtool -L a combined 2`"},
		"one less":           {count: map[string]int{"a": 4, "b": 4, "c": 3}, err: "c receives on 3 queues and a on more"},
		"the most":           {count: map[string]int{"a": 64, "b": 64, "c": 64}, want: 64},
		"too many":           {count: map[string]int{"a": 65, "b": 65, "c": 65}, err: "at most 64"},
		"none":               {count: map[string]int{"a": 1}, err: "no such interface"},
	} {
		got, err := countQueues([]string{"a", "b", "c"}, func(dev string) (int, error) {
			if n := c.count[dev]; n > 0 {
				return n, nil
			}
			return 0, fmt.Errorf("%s: no such interface", dev)
		})
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %d loops, %v; want %d, %s", name, got, err, c.want, c.err)
		}
	}
}

func TestQueuesAndCPUsMustAgree(t *testing.T) {
	n := &Node{cfg: Config{Devices: []Device{{Name: "absent0"}}}}
	if err := n.setQueues(); err == nil || !strings.Contains(err.Error(), "absent0") {
		t.Errorf("automatic queues of an interface that is not there: %v", err)
	}
	n.cfg.Loops = 2
	if err := n.setQueues(); err != nil || n.cfg.Loops != 2 {
		t.Errorf("a number of queues became %d, %v", n.cfg.Loops, err)
	}
}

func TestAMissingInterfaceIsNamedBesideThoseThereAre(t *testing.T) {
	n := &Node{cfg: Config{Devices: []Device{{Name: "lo"}, {Name: "absent0"}}}}
	if err := n.findDevices(); err == nil || !strings.Contains(err.Error(), `"absent0"`) || !strings.Contains(err.Error(), "lo") {
		t.Errorf("got %v", err)
	}
	n.cfg.Devices = []Device{{Name: "absent0", Driver: device.TAP}}
	if err := n.findDevices(); err != nil {
		t.Errorf("a TAP device is made when it is missing: %v", err)
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("a node without devices was opened")
	}
	if _, err := Open(Config{Devices: []Device{{Name: "lo"}}, Loops: 1, Metrics: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "nothing that serves it") {
		t.Errorf("metrics that nobody renders: %v", err)
	}
}
