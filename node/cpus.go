package node

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// placement is where loops run, and why.
type placement struct {
	cpus [][]int // of each loop; nil leaves them to the scheduler
	why  string
}

// place decides which CPUs loops run on. sys is /sys and may lists the CPUs of this
// process.
//
// With auto each loop has a core of its own: two loops on the threads of one core would
// share what one needs. The cores of the NUMA node that the first device is at come
// first; of those that of CPU 0, to which kernels send what has no other place, comes
// last. Somebody else must be able to run as well, so there have to be more CPUs than
// loops.
func place(want CPUs, loops int, device string, may []int, sys fs.FS) (placement, error) {
	if len(want.List) > 0 {
		for _, cpu := range want.List {
			if !slices.Contains(may, cpu) {
				return placement{}, fmt.Errorf("cpus: CPU %d is not among those of this process, %s (see taskset -p, or the unit's CPUAffinity)", cpu, listOf(may))
			}
		}
		return placement{each(want.List), "as configured"}, nil
	}
	if !want.Auto {
		return placement{why: "cpus: none"}, nil
	}
	if len(may) <= loops {
		return placement{why: fmt.Sprintf("no more CPUs than loops: %d", len(may))}, nil
	}
	near, node := nearCPUs(sys, device)
	cores := coresOf(sys, may)
	if len(cores) < loops {
		return placement{why: fmt.Sprintf("%d cores for %d loops", len(cores), loops)}, nil
	}
	slices.SortStableFunc(cores, func(a, b core) int { return a.rank(near) - b.rank(near) })
	var list []int
	for _, c := range cores[:loops] {
		list = append(list, c.cpu)
	}
	return placement{each(list), node}, nil
}

// each gives every loop one CPU of the list: with two, the scheduler would move it
// between them.
func each(list []int) (cpus [][]int) {
	for _, cpu := range list {
		cpus = append(cpus, []int{cpu})
	}
	return cpus
}

// core is a physical core by the first of its CPUs that this process may use.
type core struct {
	cpu  int
	zero bool // CPU 0 is one of it
}

// rank is lower for cores to take first.
func (c core) rank(near []int) (r int) {
	if near != nil && !slices.Contains(near, c.cpu) {
		r = 2
	}
	if c.zero {
		r++
	}
	return r
}

// coresOf returns the cores of CPUs. Where the kernel does not say which CPUs share
// one, each is one.
func coresOf(sys fs.FS, may []int) (cores []core) {
	seen := map[int]bool{}
	for _, cpu := range may {
		if seen[cpu] {
			continue
		}
		siblings, ok := readList(sys, fmt.Sprintf("devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
		if !ok {
			siblings = []int{cpu}
		}
		for _, s := range siblings {
			seen[s] = true
		}
		cores = append(cores, core{cpu, slices.Contains(siblings, 0)})
	}
	return cores
}

// nearCPUs returns the CPUs of the NUMA node that a device is at, nil where there is no
// telling, as for a device that is not one of hardware.
func nearCPUs(sys fs.FS, device string) (cpus []int, why string) {
	text, err := fs.ReadFile(sys, "class/net/"+device+"/device/numa_node")
	node, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil || node < 0 {
		return nil, "a core for each loop; " + device + " is at no NUMA node"
	}
	cpus, ok := readList(sys, fmt.Sprintf("devices/system/node/node%d/cpulist", node))
	if !ok {
		return nil, fmt.Sprintf("a core for each loop; the CPUs of NUMA node %d are not known", node)
	}
	return cpus, fmt.Sprintf("a core for each loop; %s is at NUMA node %d", device, node)
}

// readList reads the CPU lists of sysfs: a file of the form 0-3,8,10-11.
func readList(sys fs.FS, path string) ([]int, bool) {
	text, err := fs.ReadFile(sys, path)
	if err != nil {
		return nil, false
	}
	return parseList(strings.TrimSpace(string(text)))
}

// maxCPU bounds the numbers in a list: what the kernel's masks can hold.
const maxCPU = 8192

// parseList reads a list of CPUs as the kernel writes it
// (Documentation/admin-guide/cputopology.rst).
func parseList(text string) (cpus []int, ok bool) {
	if text == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(text, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(lo)
		last := first
		if isRange && err == nil {
			last, err = strconv.Atoi(hi)
		}
		if err != nil || first < 0 || last < first || last >= maxCPU {
			return nil, false
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, true
}

// listOf writes CPUs as the kernel does.
func listOf(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		part := strconv.Itoa(cpus[i])
		if j > i {
			part += "-" + strconv.Itoa(cpus[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// ownCPUs returns the CPUs that this process may run on.
func ownCPUs() (may []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("cpus: %w", err)
	}
	for cpu := range 64 * len(set) {
		if set.IsSet(cpu) {
			may = append(may, cpu)
		}
	}
	return may, nil
}

// CPUs configures where loops run. A loop that the scheduler moves loses its caches, and two
// loops on one core halve each other; a loop that is bound to a CPU on which a busy
// thread of the program runs loses as much. The zero value leaves them to the
// scheduler.
type CPUs struct {
	Auto bool  // a core for each loop
	List []int // one for each loop, in the order of the queues
}

// placeLoops chooses the CPUs of the loops. The choice is logged with its reason,
// because it explains most differences between two machines.
func (n *Node) placeLoops() error {
	may, err := ownCPUs()
	if err != nil {
		return err
	}
	p, err := place(n.cfg.CPUs, n.cfg.Loops, n.cfg.Devices[0].Name, may, os.DirFS("/sys"))
	if err != nil {
		return err
	}
	n.cpus = p.cpus
	where := "any"
	if p.cpus != nil {
		where = listOf(slices.Concat(p.cpus...))
	}
	n.log.Info("cpus", "loops", n.cfg.Loops, "cpus", where, "why", p.why)
	return nil
}
