package harness

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// CPUs returns the CPUs that this process may use: one of each core first, then the others (hyperthreads) in the same order of cores.
// The caller must not change the list.
var CPUs = sync.OnceValue(func() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
		return []int{0}
	}
	var all []int
	for cpu := 0; len(all) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return spreadOverCores(all, coreOf)
})

// Cores returns how many cores the CPUs are on.
func Cores(cpus []int) int {
	var cores []int
	for _, cpu := range cpus {
		if c := coreOf(cpu); !slices.Contains(cores, c) {
			cores = append(cores, c)
		}
	}
	return len(cores)
}

// spreadOverCores orders CPUs by how many of their core come before them.
func spreadOverCores(cpus []int, coreOf func(int) int) []int {
	before, seen := map[int]int{}, map[int]int{} // by CPU, by core
	for _, cpu := range cpus {
		core := coreOf(cpu)
		before[cpu] = seen[core]
		seen[core]++
	}
	out := slices.Clone(cpus)
	slices.SortStableFunc(out, func(a, b int) int { return before[a] - before[b] })
	return out
}

// coreOf names the core of a CPU by the first CPU that is on it. Where the kernel does not say, each CPU is a core.
func coreOf(cpu int) int {
	list := ReadFile(filepath.Join("/sys/devices/system/cpu/cpu"+strconv.Itoa(cpu), "topology/thread_siblings_list"))
	first, _, _ := strings.Cut(strings.ReplaceAll(list, "-", ","), ",")
	n, err := strconv.Atoi(first)
	if err != nil {
		return cpu
	}
	return n
}
