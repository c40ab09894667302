package doctor

import (
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// arenaBytes is the memory that one loop registers with the kernel: 32768 frames of 2 KiB.
const arenaBytes = 64 << 20

// memory checks the limits of the arena and its page sizes.
func (x *examination) memory() {
	x.memlock()
	x.hugePages()
	x.transparent()
	x.hugetlbfs()
	x.shared()
	x.cgroup()
}

func (x *examination) memlock() {
	limit, err := x.Memlock()
	c := Check{Area: "memory", Name: "memlock limit", Status: OK, Found: size(limit)}
	switch {
	case err != nil:
		c.Status, c.Found = Warn, err.Error()
	case limit >= arenaBytes:
	case x.capabilities()>>unix.CAP_IPC_LOCK&1 != 0:
		c.Found += ", which CAP_IPC_LOCK lifts"
	default:
		c.Status, c.Remedy = Fail, "ulimit -l unlimited"
		c.Found += fmt.Sprintf(": less than the %s that one AF_XDP queue registers", size(arenaBytes))
	}
	x.add(c)
}

func (x *examination) hugePages() {
	number := func(key string) int {
		n, _ := strconv.Atoi(x.field("proc/meminfo", key))
		return n
	}
	total, free := number("HugePages_Total"), number("HugePages_Free")
	want := x.hugePagesFor(reserve)
	c := Check{Area: "memory", Name: "huge pages", Status: OK, Found: fmt.Sprintf("%d of %d free, %s each", free, total, x.field("proc/meminfo", "Hugepagesize"))}
	switch {
	case total == 0:
		c.Status, c.Found = Warn, "none reserved: arenas use transparent huge pages or small ones"
		c.Remedy = fmt.Sprintf("sudo sysctl vm.nr_hugepages=%d", want)
	case free == 0:
		c.Status, c.Remedy = Warn, fmt.Sprintf("sudo sysctl vm.nr_hugepages=%d", total+want)
	}
	x.add(c)
}

// reserve is the memory that the remedies set aside: arenas of eight loops.
const reserve = 8 * arenaBytes

// hugePagesFor returns how many huge pages of the machine's usual size hold n bytes: 2 MiB on amd64
// unless the kernel's command line says 1 GiB, up to 512 MiB on arm64.
func (x *examination) hugePagesFor(n int) int {
	kib, _ := strconv.Atoi(strings.TrimSuffix(x.field("proc/meminfo", "Hugepagesize"), " kB"))
	if kib <= 0 {
		kib = 2048
	}
	return max(1, n/(kib<<10))
}

func (x *examination) transparent() {
	const file = "sys/kernel/mm/transparent_hugepage/enabled"
	choices := x.text(file)
	_, rest, _ := strings.Cut(choices, "[")
	chosen, _, _ := strings.Cut(rest, "]")
	c := Check{Area: "memory", Name: "transparent huge pages", Status: OK, Found: chosen}
	switch chosen {
	case "always", "madvise":
	case "never":
		c.Status, c.Found = Warn, "never: arenas without reserved huge pages use small ones"
		c.Remedy = "echo madvise | sudo tee /" + file
	default:
		c.Status, c.Found = Warn, "the kernel has none"
		c.Remedy = fmt.Sprintf("sudo sysctl vm.nr_hugepages=%d", x.hugePagesFor(reserve))
	}
	x.add(c)
}

// mounts returns where file systems of a type are mounted.
func (x *examination) mounts(kind string) (at []string) {
	for line := range strings.Lines(x.text("proc/mounts")) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == kind {
			at = append(at, f[1])
		}
	}
	return at
}

func (x *examination) hugetlbfs() {
	c := Check{Area: "memory", Name: "hugetlbfs", Status: OK, Found: "not mounted: only DPDK needs it"}
	if at := x.mounts("hugetlbfs"); len(at) > 0 {
		c.Found = "mounted on " + strings.Join(at, ", ")
	}
	x.add(c)
}

// shared checks for what devices named vhost: and virtio: need. Others do without, so its absence is no failure.
func (x *examination) shared() {
	c := Check{Area: "memory", Name: "shared memory", Status: OK, Found: "sealed files: virtual machines can connect (vhost:, virtio:)"}
	if err := x.Shared(); err != nil {
		c.Status, c.Found = Warn, err.Error()+": devices named vhost: and virtio: cannot be opened"
		c.Remedy = "allow memfd_create, fcntl and eventfd2 in the seccomp profile of the container"
	}
	x.add(c)
}

// cgroup checks for limits that slow a loop down: a CPU quota stops a thread that polls, a memory limit
// may be smaller than the arenas.
func (x *examination) cgroup() {
	c := Check{Area: "memory", Name: "cgroup", Status: OK}
	var limits []string
	if x.exists("sys/fs/cgroup/cgroup.controllers") {
		c.Found = "version 2"
		limits = x.limits2()
	} else if len(x.mounts("cgroup")) > 0 {
		c.Found = "version 1"
		limits = x.limits1()
	} else {
		c.Found = "none mounted"
	}
	if len(limits) == 0 {
		c.Found += ", no limits"
	} else {
		c.Found += ": " + strings.Join(limits, ", ")
		for _, l := range limits {
			if strings.HasPrefix(l, "CPU quota") {
				c.Status, c.Remedy = Warn, "run the loops on whole CPUs: --cpuset-cpus instead of --cpus, or a static CPU manager policy"
			}
		}
	}
	x.add(c)
}

// limits2 reads the limits of the process's group and of the groups above it.
func (x *examination) limits2() (limits []string) {
	_, own, _ := strings.Cut(x.text("proc/self/cgroup"), "0::")
	dir := path.Join("sys/fs/cgroup", strings.TrimSpace(own))
	if !fs.ValidPath(dir) || !x.exists(dir) {
		dir = "sys/fs/cgroup" // the group's name is of another cgroup namespace
	}
	for ; strings.HasPrefix(dir, "sys/fs/cgroup"); dir = path.Dir(dir) {
		if quota, period, ok := strings.Cut(x.text(dir+"/cpu.max"), " "); ok && quota != "max" {
			limits = append(limits, "CPU quota "+cores(quota, period))
		}
		if m, err := strconv.ParseUint(x.text(dir+"/memory.max"), 10, 64); err == nil {
			limits = append(limits, "memory "+size(m))
		}
	}
	return limits
}

// limits1 reads the limits of the group that the container sees as its root.
func (x *examination) limits1() (limits []string) {
	quota := x.text("sys/fs/cgroup/cpu/cpu.cfs_quota_us")
	if quota != "" && quota != "-1" {
		limits = append(limits, "CPU quota "+cores(quota, x.text("sys/fs/cgroup/cpu/cpu.cfs_period_us")))
	}
	m, err := strconv.ParseUint(x.text("sys/fs/cgroup/memory/memory.limit_in_bytes"), 10, 64)
	if err == nil && m < 1<<62 { // "none" is the largest multiple of a page
		limits = append(limits, "memory "+size(m))
	}
	return limits
}

// cores renders a quota per period as a number of CPUs.
func cores(quota, period string) string {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || p == 0 {
		return quota + " us"
	}
	return strconv.FormatFloat(math.Round(100*q/p)/100, 'f', -1, 64) + " CPUs"
}
