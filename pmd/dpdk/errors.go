package dpdk

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
)

// Errors of the package. They are returned wrapped, most in a pmd.OpError: test with errors.Is.
var (
	ErrNotLinked   = errors.New("this program is built without support for DPDK") // it has no loader of libraries
	ErrNoShim      = errors.New("DPDK's shim is not built")
	ErrMismatch    = errors.New("DPDK's shim does not fit")
	ErrEnvironment = errors.New("DPDK's environment does not start")
	ErrNoHugePages = errors.New("no huge pages are free")
	ErrNoDevice    = errors.New("DPDK finds no such device")
	ErrFrames      = errors.New("too few frames")
	ErrMemory      = errors.New("DPDK has too little memory") // for its own rings and tables
	ErrArguments   = errors.New("arguments of the device are wrong")
)

// InstallCommand and BuildCommand get what an UnavailableError misses, in this order.
const (
	InstallCommand = "apt-get install dpdk libdpdk-dev"
	BuildCommand   = "make dpdk"
)

// UnavailableError reports that this program cannot use DPDK here. It wraps ErrNotLinked, ErrNoShim or ErrMismatch, and
// pmd.ErrNotSupported.
type UnavailableError struct {
	Err       error
	Installed []int    // ABI numbers of DPDK that are installed
	Shims     []int    // ABI numbers of shims that were found
	Searched  []string // folders in which shims were looked for
	Detail    string   // of the linker or the shim; "" where there is none
}

// Error implements error: the cause and both versions.
func (e *UnavailableError) Error() string {
	s := fmt.Sprintf("DPDK is not available: %v: installed is %s, built are shims for %s", e.Err, versions(e.Installed), versions(e.Shims))
	if len(e.Searched) > 0 && len(e.Shims) == 0 {
		s += ", looked for in " + strings.Join(e.Searched, ", ")
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns the cause, and that the driver is not supported here.
func (e *UnavailableError) Unwrap() []error { return []error{e.Err, pmd.ErrNotSupported} }

// Remedy returns the commands that get what is missing.
func (e *UnavailableError) Remedy() string {
	switch {
	case errors.Is(e.Err, ErrNotLinked):
		return "take millrace-cuda (`make build-cuda`, or go build -tags cuda), which loads libraries; Go programs import gpukern/cuda/loader"
	case len(e.Installed) == 0:
		return fmt.Sprintf("`%s`, then `%s`", InstallCommand, BuildCommand)
	}
	return fmt.Sprintf("`%s`, and set %s to its folder unless it is installed", BuildCommand, ShimVariable)
}

// versions renders ABI numbers with the releases that they stand for: librte_eal.so.23 is DPDK 22.11.
func versions(abis []int) string {
	if len(abis) == 0 {
		return "none"
	}
	list := make([]string, len(abis))
	for i, n := range abis {
		list[i] = fmt.Sprintf("DPDK %d.11 (ABI %d)", n-1, n)
	}
	return strings.Join(list, " and ")
}

// unavailable wraps an error of load for a device.
func unavailable(device string, err error) error {
	e := &pmd.OpError{Op: "open", Device: device, Err: err}
	var missing *UnavailableError
	if errors.As(err, &missing) {
		e.Remedy = missing.Remedy()
	}
	return e
}

// errno converts a negative result of the shim. DPDK returns -1 where it has no number, which is EPERM's: its log has the
// cause then.
func errno(result int64) error {
	if result >= 0 {
		return nil
	}
	if result == -1 {
		return errors.New("failed")
	}
	return unix.Errno(-result)
}

// explain wraps an error of the shim in one of pmd's or of this package, with the end of DPDK's log and a remedy.
func explain(op, device string, queue int, err error, log string) error {
	e := &pmd.OpError{Op: op, Device: device, Queue: queue}
	lower := strings.ToLower(log)
	wrap := func(kind error, remedy string) { e.Err, e.Remedy = fmt.Errorf("%w: %w", kind, err), remedy }
	switch {
	case errors.Is(err, unix.EEXIST):
		wrap(pmd.ErrBusy, "this process has the device open already: give virtual devices names of their own (net_null1)")
	case errors.Is(err, unix.EBUSY), strings.Contains(lower, "resource busy"), strings.Contains(lower, "device or resource busy"):
		wrap(pmd.ErrBusy, "another process has the device: `dpdk-devbind.py --status`, or `ip -d link` of its interface")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), strings.Contains(lower, "operation not permitted"), strings.Contains(lower, "permission denied"):
		wrap(pmd.ErrPermission, "run as root, or give the user /dev/vfio and the limit memlock (docs/dpdk.md)")
	case errors.Is(err, unix.ENOMEM), strings.Contains(lower, "cannot reserve memory"), strings.Contains(lower, "cannot allocate memory"):
		wrap(ErrMemory, "give it more at the start: "+EALVariable+"=\"-m 256\", MiB, or fewer devices and queues")
	case op == "probe" && strings.Contains(lower, "driver cannot attach"): // it exists and refuses what it is given
		wrap(ErrArguments, "DPDK's guide of NIC drivers lists the arguments of each")
	case op == "probe":
		wrap(ErrNoDevice, "`dpdk-devbind.py --status` lists devices; virtual ones are net_null0, net_ring0, net_pcap0, net_memif0, net_tap0, net_af_packet0, net_af_xdp0")
	default:
		e.Err = err
	}
	if last := lastLines(log); last != "" {
		e.Err = fmt.Errorf("%w: %s", e.Err, last)
	}
	return e
}

// lastLines returns the end of DPDK's log on one line.
func lastLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	lines = lines[max(0, len(lines)-3):]
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
