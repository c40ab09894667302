package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// version is a kernel release as far as features depend on it.
type version struct{ major, minor int }

func (v version) before(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

// The releases that added the features of the AF_XDP driver.
var (
	hasLink     = version{5, 9} // an XDP program is attached by a link that dies with its holder
	hasBusyPoll = version{5, 11}
	hasMultiBuf = version{6, 6} // AF_XDP packets of several frames
)

// parseVersion reads the first two numbers of a release like "6.1.0-18-amd64".
func parseVersion(release string) (v version, ok bool) {
	major, rest, _ := strings.Cut(release, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	var err1, err2 error
	v.major, err1 = strconv.Atoi(major)
	v.minor, err2 = strconv.Atoi(rest)
	return v, err1 == nil && err2 == nil
}

// kernel looks at the kernel's release and at the features that depend on how it was built.
func (x *examination) kernel() {
	x.rep.Kernel = x.text("proc/sys/kernel/osrelease")
	c := Check{Area: "kernel", Name: "release", Status: OK, Found: x.rep.Kernel}
	v, ok := parseVersion(x.rep.Kernel)
	switch {
	case !ok:
		c.Status, c.Found = Warn, fmt.Sprintf("%q is not a release number that can be compared", x.rep.Kernel)
	case v.before(hasLink):
		c.Status, c.Remedy = Fail, "install Linux 5.9 or later"
		c.Found += ", older than 5.9: an XDP program would outlive a killed process"
	case v.before(hasBusyPoll):
		c.Status, c.Remedy = Warn, "install Linux 6.6 or later"
		c.Found += ", older than 5.11 and 6.6: no busy polling, no jumbo frames over AF_XDP"
	case v.before(hasMultiBuf):
		c.Status, c.Remedy = Warn, "install Linux 6.6 or later"
		c.Found += ", older than 6.6: no jumbo frames over AF_XDP"
	}
	x.add(c)
	x.btf()
	x.socket()
	x.program()
}

func (x *examination) btf() {
	c := Check{Area: "kernel", Name: "BTF", Status: OK, Found: "/sys/kernel/btf/vmlinux"}
	if !x.exists("sys/kernel/btf/vmlinux") {
		c.Status, c.Found = Warn, "missing: eBPF programs that read kernel structures cannot be loaded"
		c.Remedy = "install a kernel built with CONFIG_DEBUG_INFO_BTF=y"
	}
	x.add(c)
}

func (x *examination) socket() {
	c := Check{Area: "kernel", Name: "AF_XDP socket", Status: OK, Found: "can be opened"}
	switch err := x.Socket(); {
	case errors.Is(err, unix.EAFNOSUPPORT):
		c.Status, c.Found = Fail, "the kernel has none: the driver afpacket is used"
		c.Remedy = "install a kernel built with CONFIG_XDP_SOCKETS=y"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		c.Status, c.Found = Fail, "not permitted: CAP_NET_RAW is missing"
		c.Remedy = setcap
	case err != nil:
		c.Status, c.Found = Fail, fmt.Sprintf("cannot be opened: %v", err)
	}
	x.add(c)
}

func (x *examination) program() {
	c := Check{Area: "kernel", Name: "bpf system call", Status: OK, Found: "loads XDP programs"}
	switch err := x.Program(); {
	case errors.Is(err, unix.ENOSYS):
		c.Status, c.Found = Fail, "the kernel has none"
		c.Remedy = "install a kernel built with CONFIG_BPF_SYSCALL=y"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		c.Status, c.Found = Fail, "not permitted: CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (or root) are needed, and the container must allow bpf(2)"
		c.Remedy = setcap
	case err != nil:
		c.Status, c.Found = Fail, fmt.Sprintf("rejects an XDP program: %v", err)
	}
	x.add(c)
}

// setcap gives the binary the capabilities that it needs when it is not run by root.
const setcap = "sudo setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock+ep $(command -v millrace)"

// capability is a right of a process.
type capability struct {
	bit  uint
	name string
	why  string
}

// needed are the capabilities of the AF_XDP and AF_PACKET drivers. The AF_XDP memory that
// CAP_IPC_LOCK frees from a limit is checked with that limit.
var needed = []capability{
	{unix.CAP_NET_RAW, "CAP_NET_RAW", "to open AF_XDP and AF_PACKET sockets"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "to attach XDP programs and to make tap devices"},
	{unix.CAP_BPF, "CAP_BPF", "to load XDP programs"},
	{unix.CAP_PERFMON, "CAP_PERFMON", "for programs with arithmetic on packet pointers"},
}

// capabilities returns the effective ones of the process; CAP_SYS_ADMIN has included CAP_BPF and
// CAP_PERFMON since before there were such.
func (x *examination) capabilities() uint64 {
	set, _ := strconv.ParseUint(x.field("proc/self/status", "CapEff"), 16, 64)
	if set>>unix.CAP_SYS_ADMIN&1 != 0 {
		set |= 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON
	}
	return set
}

func (x *examination) permissions() {
	set := x.capabilities()
	var has, lacks []string
	for _, c := range needed {
		if set>>c.bit&1 != 0 {
			has = append(has, c.name)
		} else {
			lacks = append(lacks, c.name+" ("+c.why+")")
		}
	}
	c := Check{Area: "kernel", Name: "capabilities", Status: OK, Found: strings.Join(has, ", ")}
	if len(lacks) > 0 {
		c.Status, c.Remedy = Fail, setcap
		c.Found = "missing: " + strings.Join(lacks, ", ")
	}
	x.add(c)
}
