package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// server is a machine with two nodes of four cores of two threads each: CPU n and n+8
// share a core, 0-3 and 8-11 are node 0. eth0 is at node 1, eth1 at node 0, veth0
// nowhere.
func server() fstest.MapFS {
	sys := fstest.MapFS{
		"class/net/eth0/device/numa_node": {Data: []byte("1\n")}, "class/net/eth1/device/numa_node": {Data: []byte("0\n")},
		"class/net/virt0/device/numa_node": {Data: []byte("-1\n")}, "class/net/veth0/mtu": {Data: []byte("1500\n")},
		"class/net/odd0/device/numa_node":   {Data: []byte("7\n")},
		"devices/system/node/node0/cpulist": {Data: []byte("0-3,8-11\n")}, "devices/system/node/node1/cpulist": {Data: []byte("4-7,12-15\n")},
	}
	for cpu := range 16 {
		sys[fmt.Sprintf("devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d,%d\n", cpu%8, cpu%8+8)}
	}
	return sys
}

func upTo(n int) (cpus []int) {
	for cpu := range n {
		cpus = append(cpus, cpu)
	}
	return cpus
}

func TestEachLoopHasACoreNearTheFirstDevice(t *testing.T) {
	auto := CPUs{Auto: true}
	for name, c := range map[string]struct {
		want   CPUs
		loops  int
		device string
		may    []int
		bare   bool // a machine without topology in /sys
		cpus   []int
		why    string
	}{
		"one loop":                      {want: auto, loops: 1, device: "eth0", may: upTo(16), cpus: []int{4}, why: "node 1"},
		"a loop for each near core":     {want: auto, loops: 4, device: "eth0", may: upTo(16), cpus: []int{4, 5, 6, 7}},
		"more than near cores":          {want: auto, loops: 6, device: "eth0", may: upTo(16), cpus: []int{4, 5, 6, 7, 1, 2}},
		"CPU 0 is the last near one":    {want: auto, loops: 4, device: "eth1", may: upTo(16), cpus: []int{1, 2, 3, 0}},
		"never two threads of one core": {want: auto, loops: 9, device: "eth0", may: upTo(16), why: "8 cores for 9 loops"},
		"all cores":                     {want: auto, loops: 8, device: "eth1", may: upTo(16), cpus: []int{1, 2, 3, 0, 4, 5, 6, 7}},
		"only the second threads":       {want: auto, loops: 2, device: "eth0", may: []int{8, 9, 12, 13}, cpus: []int{12, 13}},
		"both threads of two cores":     {want: auto, loops: 2, device: "eth0", may: []int{4, 5, 12, 13}, cpus: []int{4, 5}},
		"two threads of one core":       {want: auto, loops: 1, device: "eth0", may: []int{5, 13}, cpus: []int{5}},
		"a device without a node":       {want: auto, loops: 2, device: "virt0", may: upTo(16), cpus: []int{1, 2}, why: "no NUMA node"},
		"a device without hardware":     {want: auto, loops: 2, device: "veth0", may: upTo(16), cpus: []int{1, 2}},
		"a node without a list":         {want: auto, loops: 1, device: "odd0", may: upTo(16), cpus: []int{1}, why: "not known"},
		"no CPU to spare":               {want: auto, loops: 2, device: "eth0", may: []int{4, 5}, why: "no more CPUs than loops: 2"},
		"a machine that says nothing":   {want: auto, loops: 2, device: "eth0", may: upTo(4), bare: true, cpus: []int{1, 2}},
		"none":                          {want: CPUs{}, loops: 1, device: "eth0", may: upTo(16), why: "none"},
		"a list":                        {want: CPUs{List: []int{9, 3}}, loops: 2, device: "eth0", may: upTo(16), cpus: []int{9, 3}},
	} {
		sys := server()
		if c.bare {
			sys = fstest.MapFS{}
		}
		p, err := place(c.want, c.loops, c.device, c.may, sys)
		if got := slices.Concat(p.cpus...); err != nil || !slices.Equal(got, c.cpus) || !strings.Contains(p.why, c.why) || c.cpus != nil && len(p.cpus) != c.loops {
			t.Errorf("%s: %v, %v (%s), want %v (%s)", name, err, p.cpus, p.why, c.cpus, c.why)
		}
	}
}

func TestACPUThatIsNotOursIsRefused(t *testing.T) {
	_, err := place(CPUs{List: []int{2, 5}}, 2, "eth0", []int{0, 1, 2, 3}, server())
	if err == nil || !strings.Contains(err.Error(), "CPU 5 is not among those of this process, 0-3") {
		t.Errorf("got %v", err)
	}
}

func TestListsOfCPUs(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, "0": {0}, "0-3": {0, 1, 2, 3}, "0-1,8-9,15": {0, 1, 8, 9, 15}, "5,3": {5, 3}, "7-7": {7}, "8191": {8191},
	} {
		if got, ok := parseList(text); !ok || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"x", "1-", "-1", "3-1", "1,,2", "0-8192", "1-2-3", "1 2", "99999999999999999999"} {
		if got, ok := parseList(text); ok {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	for want, cpus := range map[string][]int{"": nil, "3": {3}, "0-2,7": {0, 1, 2, 7}, "4,2": {4, 2}} {
		if got := listOf(cpus); got != want {
			t.Errorf("%v is written as %q, want %q", cpus, got, want)
		}
	}
}

func TestThisMachineHasCPUs(t *testing.T) {
	may, err := ownCPUs()
	if err != nil || len(may) == 0 || !slices.IsSorted(may) {
		t.Errorf("%v, %v", may, err)
	}
}

// FuzzParseList holds the reader against the writer.
func FuzzParseList(f *testing.F) {
	f.Add("0-3,8,10-11")
	f.Add("0,0-1")
	f.Fuzz(func(t *testing.T, text string) {
		cpus, ok := parseList(text)
		if !ok || len(cpus) > 1<<16 {
			return
		}
		again, ok := parseList(listOf(cpus))
		if diff := cmp.Diff(cpus, again); !ok || diff != "" {
			t.Errorf("%q is %v, written and read again: %s", text, cpus, diff)
		}
	})
}
