package doctor

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern"
)

// machine is a made-up file system that has everything; tests take from it.
func machine() fstest.MapFS {
	m := fstest.MapFS{}
	for path, text := range map[string]string{
		"proc/sys/kernel/osrelease":                       "6.12.3-amd64\n",
		"sys/kernel/btf/vmlinux":                          "BTF",
		"proc/self/status":                                "Name:\tmillrace\nCapEff:\t000001ffffffffff\n",
		"proc/meminfo":                                    "HugePages_Total:     512\nHugePages_Free:      500\nHugepagesize:       2048 kB\n",
		"sys/kernel/mm/transparent_hugepage/enabled":      "always [madvise] never\n",
		"proc/mounts":                                     "hugetlbfs /dev/hugepages hugetlbfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
		"sys/fs/cgroup/cgroup.controllers":                "cpu memory\n",
		"proc/self/cgroup":                                "0::/system.slice/millrace.service\n",
		"proc/cpuinfo":                                    "processor\t: 0\nmodel name\t: Test CPU\nflags\t\t: fpu sse4_2 avx2 avx512f\n\nprocessor\t: 1\nmodel name\t: Test CPU\nflags\t\t: fpu sse4_2 avx2 avx512f\n",
		"sys/devices/system/cpu/isolated":                 "2-3\n",
		"proc/driver/nvidia/version":                      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 2025\n",
		"dev/nvidia0":                                     "",
		"dev/nvidiactl":                                   "",
		"etc/ld.so.conf.d/cuda.conf":                      "# CUDA\n/opt/cuda/lib\n",
		"opt/cuda/lib/libcuda.so.1":                       "",
		"usr/lib/x86_64-linux-gnu/librte_eal.so.24":       "",
		"usr/lib/x86_64-linux-gnu/librte_eal.so.24.0":     "",
		"usr/bin/dpdk-testpmd":                            "",
		"sys/fs/cgroup/system.slice/millrace.service/x":   "",
		"sys/fs/cgroup/system.slice/memory.max":           "max\n",
		"proc/77/comm":                                    "suricata\n",
		"proc/77/fdinfo/5":                                "pos:\t0\nlink_type:\txdp\nprog_id:\t42\nifindex:\t2\n",
		"proc/70/comm":                                    "other\n",
		"proc/70/fdinfo/5":                                "prog_id:\t421\n",
		"sys/bus/pci/devices/0000:01:00.0/vendor":         "0x10de\n",
		"sys/bus/pci/devices/0000:01:00.0/class":          "0x030200\n",
		"sys/bus/pci/devices/0000:02:00.0/vendor":         "0x10de\n",
		"sys/bus/pci/devices/0000:02:00.0/class":          "0x040300\n",
		"sys/kernel/mm/transparent_hugepage/defrag":       "",
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_max": "",
	} {
		m[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

// good is an interface that nothing is wrong with.
var good = Link{Name: "eth1", Up: true, MTU: 1500, Driver: "ice", Queues: 4, Features: 0x2b, Known: true}

func host(fsys fs.FS, links ...Link) Host {
	return Host{
		FS:        fsys,
		Env:       func(string) string { return "" },
		Socket:    func() error { return nil },
		Program:   func() error { return nil },
		Memlock:   func() (uint64, error) { return ^uint64(0), nil },
		Shared:    func() error { return nil },
		OwnMemory: func() error { return nil },
		Links:     func([]string) ([]Link, error) { return links, nil },
		Holder:    holder,
	}
}

// check returns the named check of a report.
func check(t *testing.T, r *Report, name string) Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check named %q", name)
	return Check{}
}

func TestAMachineThatHasEverythingIsOK(t *testing.T) {
	r := Examine(host(machine(), good), nil)
	for _, c := range r.Checks {
		if c.Status != OK || c.Remedy != "" || c.Found == "" {
			t.Errorf("%s: %s %q -> %q", c.Name, c.Status, c.Found, c.Remedy)
		}
	}
	if r.Failed() || r.CPUs != 2 || r.Kernel != "6.12.3-amd64" {
		t.Errorf("failed %v, %d CPUs, kernel %q", r.Failed(), r.CPUs, r.Kernel)
	}
	for name, want := range map[string]string{
		"CUDA":                "driver 570.86.15, /opt/cuda/lib/libcuda.so.1, /dev/nvidia0",
		"DPDK":                "version 23.11, /usr/lib/x86_64-linux-gnu/librte_eal.so.24.0, /usr/bin/dpdk-testpmd; its shim is missing, which only devices named dpdk: need: make dpdk",
		"eth1":                "ice, XDP native, zero-copy, multi-buffer, 4 queues, MTU 1500",
		"vector instructions": "sse4_2 avx2 avx512f",
		"hugetlbfs":           "mounted on /dev/hugepages",
		"cgroup":              "version 2, no limits",
		"isolated CPUs":       "2-3",
		"huge pages":          "500 of 512 free, 2048 kB each",
	} {
		if got := check(t, r, name).Found; got != want {
			t.Errorf("%s: found %q, want %q", name, got, want)
		}
	}
}

func TestMissingPartsAreNamedWithTheirRemedy(t *testing.T) {
	set := func(path, text string) func(fstest.MapFS) {
		return func(m fstest.MapFS) { m[path] = &fstest.MapFile{Data: []byte(text)} }
	}
	gone := func(paths ...string) func(fstest.MapFS) {
		return func(m fstest.MapFS) {
			for _, p := range paths {
				delete(m, p)
			}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(fstest.MapFS)
		check  string
		status Status
		found  string // part of it
		remedy string // part of it
	}{
		{"a kernel without links", set("proc/sys/kernel/osrelease", "5.4.0"), "release", Fail, "outlive", "5.9"},
		{"a kernel without jumbo frames", set("proc/sys/kernel/osrelease", "6.5.13"), "release", Warn, "jumbo", "6.6"},
		{"the first kernel with jumbo frames", set("proc/sys/kernel/osrelease", "6.6.0"), "release", OK, "6.6.0", ""},
		{"a kernel without busy polling", set("proc/sys/kernel/osrelease", "5.10.0-28-amd64"), "release", Warn, "busy polling", "6.6"},
		{"a kernel with a strange name", set("proc/sys/kernel/osrelease", "custom"), "release", Warn, `"custom"`, ""},
		{"no BTF", gone("sys/kernel/btf/vmlinux"), "BTF", Warn, "missing", "CONFIG_DEBUG_INFO_BTF"},
		{"a user without rights", set("proc/self/status", "CapEff:\t0000000000000000\n"), "capabilities", Fail, "CAP_NET_RAW", "setcap"},
		{"a container with CAP_NET_RAW only", set("proc/self/status", "CapEff:\t0000000000002000\n"), "capabilities", Fail, "missing: CAP_NET_ADMIN", "setcap"},
		{"CAP_SYS_ADMIN in place of CAP_BPF", set("proc/self/status", "CapEff:\t0000000000203000\n"), "capabilities", OK, "CAP_BPF, CAP_PERFMON", ""},
		{"CAP_BPF without CAP_PERFMON", set("proc/self/status", "CapEff:\t0000008000003000\n"), "capabilities", Fail, "missing: CAP_PERFMON", "cap_perfmon"},
		{"no huge pages", set("proc/meminfo", "HugePages_Total: 0\n"), "huge pages", Warn, "none reserved", "sysctl vm.nr_hugepages=256\n"},
		{"huge pages all in use", set("proc/meminfo", "HugePages_Total: 8\nHugePages_Free: 0\n"), "huge pages", Warn, "0 of 8", "sysctl vm.nr_hugepages=264\n"},
		{"no huge pages of 1 GiB", set("proc/meminfo", "HugePages_Total: 0\nHugepagesize: 1048576 kB\n"), "huge pages", Warn, "none reserved", "sysctl vm.nr_hugepages=1\n"},
		{"no huge pages of 32 MiB", set("proc/meminfo", "HugePages_Total: 0\nHugepagesize: 32768 kB\n"), "huge pages", Warn, "none reserved", "sysctl vm.nr_hugepages=16\n"},
		{"transparent pages always on", set("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"), "transparent huge pages", OK, "always", ""},
		{"a kernel without transparent pages", gone("sys/kernel/mm/transparent_hugepage/enabled"), "transparent huge pages", Warn, "the kernel has none", "sysctl vm.nr_hugepages=256\n"},
		{"hugetlbfs not mounted", set("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), "hugetlbfs", OK, "only DPDK", ""},
		{"two hugetlbfs", set("proc/mounts", "none /a hugetlbfs rw\nnone /b hugetlbfs pagesize=1G\nnone /c tmpfs\n"), "hugetlbfs", OK, "mounted on /a, /b", ""},
		{"a CPU quota of many CPUs", set("sys/fs/cgroup/system.slice/millrace.service/cpu.max", "12800000 100000"), "cgroup", Warn, "CPU quota 128 CPUs", "cpuset"},
		{"a CPU quota of a third", set("sys/fs/cgroup/system.slice/millrace.service/cpu.max", "33333 100000"), "cgroup", Warn, "CPU quota 0.33 CPUs", "cpuset"},
		{"a group of another namespace", set("proc/self/cgroup", "0::/../../elsewhere\n"), "cgroup", OK, "no limits", ""},
		{"no cgroups", func(m fstest.MapFS) { delete(m, "sys/fs/cgroup/cgroup.controllers"); delete(m, "proc/mounts") }, "cgroup", OK, "none mounted", ""},
		{"CPUs that nobody set apart", gone("sys/devices/system/cpu/isolated"), "isolated CPUs", OK, "none", ""},
		{"a CPU of arm64", set("proc/cpuinfo", "processor : 0\nFeatures : fp asimd sve\n"), "vector instructions", Warn, "asimd sve (no avx2", ""},
		{"a CPU without a name", set("proc/cpuinfo", "processor : 0\nFeatures : fp asimd sve\n"), "model", OK, "1 x unknown model", ""},
		{"a CPU told to be fast", set("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"), "frequency governor", OK, "performance", ""},
		{"no DPDK", gone("usr/lib/x86_64-linux-gnu/librte_eal.so.24", "usr/lib/x86_64-linux-gnu/librte_eal.so.24.0", "usr/bin/dpdk-testpmd"), "DPDK", OK, "not installed: only devices named dpdk: need it (apt-get install dpdk libdpdk-dev, then make dpdk)", ""},
		{"DPDK without its shim", func(fstest.MapFS) {}, "DPDK", OK, "/usr/bin/dpdk-testpmd; its shim is missing, which only devices named dpdk: need: make dpdk", ""},
		{"a shim of another DPDK", set("usr/lib/millrace/libmillrace-dpdk-23.so", ""), "DPDK", OK, "its shim is missing, /usr/lib/millrace/libmillrace-dpdk-23.so is for DPDK 22.11: make dpdk", ""},
		{"DPDK and its shim", set("usr/lib/millrace/libmillrace-dpdk-24.so", ""), "DPDK", OK, "version 23.11, /usr/lib/x86_64-linux-gnu/librte_eal.so.24.0, /usr/bin/dpdk-testpmd; shim /usr/lib/millrace/libmillrace-dpdk-24.so; no exception= for the kernel: /dev/net/tun is missing (modprobe tun)", ""},
		{"DPDK and TAP devices", func(m fstest.MapFS) {
			set("usr/lib/millrace/libmillrace-dpdk-24.so", "")(m)
			set("dev/net/tun", "")(m)
		}, "DPDK", OK, "libmillrace-dpdk-24.so; steers in software, the rest to the kernel by exception=", ""},
		{"DPDK of one's own making", func(m fstest.MapFS) {
			m["usr/local/lib/librte_eal.so.26.1"], m["usr/local/bin/dpdk-testpmd"] = m["dev/nvidia0"], m["dev/nvidia0"]
			delete(m, "usr/lib/x86_64-linux-gnu/librte_eal.so.24")
			delete(m, "usr/lib/x86_64-linux-gnu/librte_eal.so.24.0")
		}, "DPDK", OK, "version 25.11, /usr/local/lib/librte_eal.so.26.1, /usr/bin/dpdk-testpmd, /usr/local/bin/dpdk-testpmd", ""},
		{"an open kernel module", set("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"), "CUDA", OK, "driver 580.65.06", ""},
		{"transparent pages off", set("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"), "transparent huge pages", Warn, "never", "echo madvise"},
		{"a CPU quota above the own group", set("sys/fs/cgroup/system.slice/cpu.max", "150000 100000"), "cgroup", Warn, "CPU quota 1.5 CPUs", "cpuset"},
		{"a memory limit", set("sys/fs/cgroup/system.slice/memory.max", "1073741824"), "cgroup", OK, "memory 1.0 GiB", ""},
		{"an old CPU", set("proc/cpuinfo", "processor: 0\nflags: sse4_2\n"), "vector instructions", Warn, "no avx2", ""},
		{"a CPU that saves power", set("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"), "frequency governor", Warn, "powersave", "cpupower"},
		{"a GPU without a driver", gone("proc/driver/nvidia/version", "dev/nvidia0", "dev/nvidiactl"), "CUDA", Warn, "without a driver", "nvidia-driver"},
		{"a driver without device files", gone("dev/nvidia0"), "CUDA", Warn, "no /dev/nvidia", "nvidia-modprobe"},
		{"a driver without its library", gone("opt/cuda/lib/libcuda.so.1"), "CUDA", Warn, "libcuda.so.1 is not", "libcuda1"},
		{"no GPU", gone("proc/driver/nvidia/version", "dev/nvidia0", "sys/bus/pci/devices/0000:01:00.0/vendor"), "CUDA", OK, "no NVIDIA device", ""},
	} {
		m := machine()
		tc.change(m)
		c := check(t, Examine(host(m, good), nil), tc.check)
		if c.Status != tc.status || !strings.Contains(c.Found, tc.found) || !strings.Contains(c.Remedy+"\n", tc.remedy) || tc.remedy == "" && c.Remedy != "" {
			t.Errorf("%s: %s %q -> %q, want %s %q -> %q", tc.name, c.Status, c.Found, c.Remedy, tc.status, tc.found, tc.remedy)
		}
	}
}

func TestWhatTheKernelRefusesIsExplained(t *testing.T) {
	for _, tc := range []struct {
		err             error
		socket, program string
	}{
		{unix.EPERM, "CAP_NET_RAW", "CAP_BPF"},
		{unix.EAFNOSUPPORT, "has none", "address family"},
		{unix.ENOSYS, "cannot be opened", "has none"},
	} {
		h := host(machine())
		h.Socket = func() error { return tc.err }
		h.Program = func() error { return tc.err }
		r := Examine(h, nil)
		s, p := check(t, r, "AF_XDP socket"), check(t, r, "bpf system call")
		if s.Status != Fail || !strings.Contains(s.Found, tc.socket) || p.Status != Fail || !strings.Contains(p.Found, tc.program) {
			t.Errorf("%v: %q and %q, want %q and %q", tc.err, s.Found, p.Found, tc.socket, tc.program)
		}
		if !r.Failed() {
			t.Errorf("%v: the report has not failed", tc.err)
		}
	}
}

func TestTheMemlockLimitCountsOnlyWithoutTheRightToPassIt(t *testing.T) {
	m := machine()
	h := host(m)
	h.Memlock = func() (uint64, error) { return 8 << 20, nil }
	if c := check(t, Examine(h, nil), "memlock limit"); c.Status != OK || c.Found != "8 MiB, which CAP_IPC_LOCK lifts" {
		t.Errorf("with CAP_IPC_LOCK: %s %q", c.Status, c.Found)
	}
	m["proc/self/status"].Data = []byte("CapEff:\t0000000000003000\n")
	if c := check(t, Examine(h, nil), "memlock limit"); c.Status != Fail || c.Remedy != "ulimit -l unlimited" {
		t.Errorf("without: %s %q", c.Status, c.Remedy)
	}
}

func TestCgroupVersionOneLimitsAreFound(t *testing.T) {
	m := machine()
	delete(m, "sys/fs/cgroup/cgroup.controllers")
	for path, text := range map[string]string{
		"proc/mounts":                                  "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n",
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us":           "50000",
		"sys/fs/cgroup/cpu/cpu.cfs_period_us":          "100000",
		"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712",
		"sys/fs/cgroup/memory/memory.soft_limit_bytes": "1",
	} {
		m[path] = &fstest.MapFile{Data: []byte(text)}
	}
	if c := check(t, Examine(host(m), nil), "cgroup"); c.Status != Warn || c.Found != "version 1: CPU quota 0.5 CPUs" {
		t.Errorf("%s %q", c.Status, c.Found)
	}
}

func TestInterfaceChecks(t *testing.T) {
	with := func(change func(l *Link)) Link {
		l := good
		change(&l)
		return l
	}
	for _, tc := range []struct {
		name   string
		link   Link
		status Status
		found  string
		remedy string
	}{
		{"veth", with(func(l *Link) { l.Driver = "veth" }), OK, "", ""},
		{"down", with(func(l *Link) { l.Up = false }), Warn, "it is down", "sudo ip link set dev eth1 up"},
		{"missing", Link{Name: "eth1", Missing: true}, Fail, "no interface of this name", "ip -brief link"},
		{"held by a process", with(func(l *Link) { l.Program, l.Mode = 42, 1 }), Warn, "program 42 is attached (native) and held by suricata (pid 77)", "stop suricata (pid 77)"},
		{"held by nobody", with(func(l *Link) { l.Program, l.Mode = 43, 2 }), Warn, "(generic) and held by no visible process", "sudo ip link set dev eth1 xdp off"},
		{"without XDP in the driver", with(func(l *Link) { l.Features = 0 }), Warn, "XDP generic", ""},
		{"on an old kernel", with(func(l *Link) { l.Features, l.Known = 0, false }), OK, "XDP unknown", ""},
		{"jumbo that fits several frames", with(func(l *Link) { l.MTU = 9000 }), OK, "MTU 9000", ""},
		{"jumbo that does not fit", with(func(l *Link) { l.MTU, l.Features = 9000, 3 }), Warn, "does not fit", "sudo ip link set dev eth1 mtu 1500"},
		{"the largest that fits", with(func(l *Link) { l.MTU, l.Features = 1770, 3 }), OK, "MTU 1770", ""},
		{"one more", with(func(l *Link) { l.MTU, l.Features = 1771, 3 }), Warn, "does not fit", "sudo ip link set dev eth1 mtu 1500"},
	} {
		c := check(t, Examine(host(machine(), tc.link), []string{"eth1"}), "eth1")
		if c.Status != tc.status || !strings.Contains(c.Found, tc.found) || c.Remedy != tc.remedy {
			t.Errorf("%s: %s %q -> %q, want %s %q -> %q", tc.name, c.Status, c.Found, c.Remedy, tc.status, tc.found, tc.remedy)
		}
	}
}

func TestAllProblemsOfAnInterfaceAreReportedWithTheFirstRemedy(t *testing.T) {
	l := Link{Name: "eth1", MTU: 9000, Features: 0, Known: true, Program: 43, Mode: 2}
	c := check(t, Examine(host(machine(), l), []string{"eth1"}), "eth1")
	want := "no driver, XDP generic, MTU 9000; it is down; XDP program 43 is attached (generic) and held by no visible process" +
		"; MTU over 1770 does not fit a frame and the device cannot use several; the driver has no native XDP: slower"
	if c.Found != want || c.Remedy != "sudo ip link set dev eth1 up" {
		t.Errorf("%q -> %q", c.Found, c.Remedy)
	}
}

// TestHolderIsFoundOnlyWhereItIsVisible examines as a user who may not read the files of others.
func TestHolderIsFoundOnlyWhereItIsVisible(t *testing.T) {
	m := machine()
	l := good
	l.Program, l.Mode = 42, 1
	if c := check(t, Examine(host(m, l), nil), "eth1"); c.Remedy != "stop suricata (pid 77)" {
		t.Errorf("as root: %q -> %q", c.Found, c.Remedy)
	}
	m["proc/self/status"].Data = []byte("CapEff:\t0000000000003000\n")
	delete(m, "proc/77/fdinfo/5")
	if c := check(t, Examine(host(m, l), nil), "eth1"); c.Remedy != "sudo millrace doctor --iface eth1" || !strings.Contains(c.Found, "no visible process") {
		t.Errorf("as a user: %q -> %q", c.Found, c.Remedy)
	}
}

func TestInterfacesThatCannotBeListedAreAFailure(t *testing.T) {
	h := host(machine())
	h.Links = func([]string) ([]Link, error) { return nil, unix.EPERM }
	r := Examine(h, nil)
	if c := check(t, r, "list"); c.Status != Fail || c.Area != "interface" || !r.Failed() || len(r.Interfaces) != 0 {
		t.Errorf("%s %q", c.Status, c.Found)
	}
}

func TestALimitThatCannotBeReadIsAWarning(t *testing.T) {
	h := host(machine())
	h.Memlock = func() (uint64, error) { return 0, unix.EINVAL }
	if c := check(t, Examine(h, nil), "memlock limit"); c.Status != Warn || c.Found != unix.EINVAL.Error() {
		t.Errorf("%s %q", c.Status, c.Found)
	}
	for limit, want := range map[uint64]Status{64<<20 - 1: Fail, 64 << 20: OK} {
		h := host(fstest.MapFS{})
		h.Memlock = func() (uint64, error) { return limit, nil }
		if c := check(t, Examine(h, nil), "memlock limit"); c.Status != want {
			t.Errorf("%d bytes: %s %q", limit, c.Status, c.Found)
		}
	}
}

func TestMemoryThatCannotBeSharedIsAWarning(t *testing.T) {
	h := host(machine())
	if c := check(t, Examine(h, nil), "shared memory"); c.Status != OK || c.Remedy != "" {
		t.Errorf("%s %q", c.Status, c.Remedy)
	}
	h.Shared = func() error { return unix.ENOSYS }
	if c := check(t, Examine(h, nil), "shared memory"); c.Status != Warn || !strings.Contains(c.Found, "vhost:") || !strings.Contains(c.Remedy, "memfd_create") {
		t.Errorf("%s %q, %q", c.Status, c.Found, c.Remedy)
	}
	if err := shared(); err != nil {
		t.Errorf("here: %v", err)
	}
}

func TestSizesAreForPeople(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 KiB", 8 << 10: "8 KiB", 1<<20 - 1024: "1023 KiB", 1 << 20: "1 MiB", 64 << 20: "64 MiB",
		1 << 30: "1.0 GiB", 3 << 29: "1.5 GiB", ^uint64(0): "unlimited",
	} {
		if got := size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestTheLibraryPathIsSearchedFirst(t *testing.T) {
	m := machine()
	m["home/lib/libcuda.so.1"] = m["dev/nvidia0"]
	m["etc/ld.so.conf"] = &fstest.MapFile{Data: []byte("include /etc/ld.so.conf.d/*.conf\n/srv/lib\n")}
	m["srv/lib/librte_eal.so.25.2"] = m["dev/nvidia0"]
	h := host(m)
	h.Env = func(name string) string {
		if name == "MILLRACE_DPDK_SHIM" {
			return ""
		}
		if name != "LD_LIBRARY_PATH" {
			t.Errorf("asked for %s", name)
		}
		return ":/nowhere:/home/lib/"
	}
	r := Examine(h, nil)
	if c := check(t, r, "CUDA"); !strings.Contains(c.Found, " /home/lib/libcuda.so.1,") {
		t.Errorf("CUDA: %q", c.Found)
	}
	if c := check(t, r, "DPDK"); !strings.Contains(c.Found, "version 24.11, /srv/lib/librte_eal.so.25.2") {
		t.Errorf("DPDK: %q", c.Found)
	}
}

func TestOnlyInterfacesThatAreUpAreExaminedUnlessNamed(t *testing.T) {
	lo := Link{Name: "lo", Up: true, Loopback: true, MTU: 65536}
	down := Link{Name: "eth9", MTU: 1500}
	if r := Examine(host(machine(), lo, good, down), nil); len(r.Interfaces) != 1 || r.Interfaces[0].Name != "eth1" {
		t.Errorf("examined %v, want eth1 only", r.Interfaces)
	}
	if r := Examine(host(machine(), lo, down), []string{"lo", "eth9"}); len(r.Interfaces) != 2 {
		t.Errorf("examined %v, want both that were named", r.Interfaces)
	}
}

func TestAnEmptyMachineIsExaminedToTheEnd(t *testing.T) {
	r := Examine(host(fstest.MapFS{}), nil)
	if !r.Failed() || len(r.Checks) < 10 {
		t.Errorf("failed %v with %d checks", r.Failed(), len(r.Checks))
	}
}

func TestThisMachineIsExaminedAndLeftAsItWas(t *testing.T) {
	r := Examine(This(), []string{"lo"})
	if r.Kernel == "" || r.CPUs == 0 || len(r.Interfaces) != 1 || r.Interfaces[0].Name != "lo" || !r.Interfaces[0].Up {
		t.Errorf("kernel %q, %d CPUs, interfaces %+v", r.Kernel, r.CPUs, r.Interfaces)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if after := Examine(This(), []string{"lo"}); after.Interfaces[0].Program != 0 {
		t.Errorf("XDP program %d is attached to lo", after.Interfaces[0].Program)
	}
}

// TestFailedKernelsHaveARemedy: that of the driver's result where there is one, and once.
func TestFailedKernelsHaveARemedy(t *testing.T) {
	for _, tc := range []struct{ err, known, found, remedy string }{
		{"3 results are wrong", "", "3 results are wrong", kernelRemedy},
		{"cuda: cuInit: stub: install the driver", "install the driver", "cuInit: stub", "install the driver"},
	} {
		x := &examination{Host: Host{GPU: func() (GPU, error) { return GPU{Remedy: tc.known}, errors.New(tc.err) }}}
		x.kernels()
		if c := x.rep.Checks[0]; c.Status != Warn || c.Found != tc.found || c.Remedy != tc.remedy {
			t.Errorf("%+v, want %q, %q", c, tc.found, tc.remedy)
		}
	}
}

func TestGPUIsCheckedWhereItsLibraryIs(t *testing.T) {
	gpu := GPU{Name: "NVIDIA H200", Bus: "0000:17:00.0, 32.0 GT/s PCIe x16", Driver: "12.4", Capability: 90, Memory: 141 << 30, Modules: 4, Verified: 768, Batch: "256 packets in 8.1 us"}
	never, pays := gpu, gpu
	never.Calibrations = []gpukern.CalibrationReport{{Text: "parse, 64 B: never"}}
	pays.Calibrations = []gpukern.CalibrationReport{{Text: "parse, 1408 B: from 7", BreakEven: 7}}
	worked := func(more ...string) map[string]string {
		m := map[string]string{
			"device":  "NVIDIA H200, compute capability 9.0, 141.0 GiB of memory, driver for CUDA 12.4, 0000:17:00.0, 32.0 GT/s PCIe x16",
			"kernels": "4 modules compiled, 768 results compared and correct, 256 packets in 8.1 us",
		}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	lib := fstest.MapFS{"usr/lib/x86_64-linux-gnu/libcuda.so.1": {}, "dev/nvidia0": {}, "proc/driver/nvidia/version": {Data: []byte("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue")}}
	for _, tc := range []struct {
		fs    fstest.MapFS
		gpu   GPU
		err   error
		want  map[string]string
		state Status
	}{
		{lib, gpu, nil, worked(), OK},
		{lib, pays, nil, worked("calibration", "parse, 1408 B: from 7"), OK},
		{lib, never, nil, worked("calibration", "parse, 64 B: never", "engine", "CPU only: the GPU is not faster in any measured case"), OK},
		{lib, GPU{}, errors.New("cuda: cuInit: broken"), map[string]string{
			"kernels": "cuInit: broken", "engine": "CPU only: the GPU failed the check",
		}, Warn},
		{fstest.MapFS{}, gpu, nil, map[string]string{"engine": "CPU only: no NVIDIA device"}, ""},
	} {
		asked := false
		x := &examination{Host: Host{FS: tc.fs, Env: func(string) string { return "" }, GPU: func() (GPU, error) { asked = true; return tc.gpu, tc.err }}}
		x.cuda()
		got, state := map[string]string{}, Status("")
		for _, c := range x.rep.Checks {
			if c.Name != "CUDA" {
				got[c.Name] = c.Found
			}
			if c.Name == "kernels" {
				state = c.Status
			}
		}
		if !maps.Equal(got, tc.want) || state != tc.state || asked != (tc.state != "") {
			t.Errorf("asked %v: %v %q, want %v %q", asked, got, state, tc.want, tc.state)
		}
		if static := (&examination{Host: Host{FS: tc.fs, Env: x.Env, NoGPUs: true, GPU: func() (GPU, error) { t.Error("the static program asks a GPU"); return GPU{}, nil }}}); true {
			static.cuda()
			if last := static.rep.Checks[len(static.rep.Checks)-1]; last.Name != "engine" || !strings.Contains(last.Found, "this program is static") {
				t.Errorf("the static program: %+v", static.rep.Checks)
			}
		}
		if len(x.rep.Calibrations) != len(tc.gpu.Calibrations) && asked {
			t.Errorf("calibrations %v", x.rep.Calibrations)
		}
	}
}
