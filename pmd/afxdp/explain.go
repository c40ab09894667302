package afxdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/xdp"
)

// busyError returns ErrBusy where the interface has an XDP program, with the process that holds it. The kernel's own EBUSY
// names neither. why is the error of attaching. A program that was attached by netlink has no holder and stays until it is taken off.
func (d *Device) busyError(why error) error {
	id, err := attached(d.iface.index)
	if err != nil {
		return d.fail("open", 0, err, "")
	}
	if id == 0 {
		return nil
	}
	if xdp.IsDispatcher(uint32(id)) {
		return d.fail("attach", 0, fmt.Errorf("%w: join the interface's XDP dispatcher: %w", pmd.ErrBusy, why),
			"take its programs off: millrace filter detach, or xdp-loader unload "+d.iface.name+" --all")
	}
	what := fmt.Sprintf("XDP program %d", id)
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		if info, err := p.Info(); err == nil && info.Name != "" {
			what += fmt.Sprintf(" %q", info.Name)
		}
		p.Close()
	}
	remedy := fmt.Sprintf("take it off with: ip link set %s xdp off, or xdpgeneric off", d.iface.name)
	if holders := xdp.Processes(uint32(id)); len(holders) > 0 {
		what += " of " + strings.Join(holders, ", ")
		remedy = "stop that process, or take its program off"
	}
	return d.fail("attach", 0, fmt.Errorf("%w: %s is attached to the interface", pmd.ErrBusy, what), remedy)
}

// explain turns an error of the kernel into one of pmd's, with a remedy. The kernel has few error codes for
// many reasons: which one it is follows from the step that failed and from the configuration.
func (d *Device) explain(op string, queue int, err error) error {
	name := d.iface.name
	switch {
	case errors.As(err, new(*ebpf.VerifierError)) && errors.Is(err, unix.EACCES): // its log is many lines long
		err = fmt.Errorf("the verifier lets only processes with CAP_PERFMON compute with packet pointers: %w", unix.EACCES)
		return d.fail(op, queue, fmt.Errorf("%w: %w", pmd.ErrPermission, err), missingCapability(op))
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return d.fail(op, queue, fmt.Errorf("%w: %w", pmd.ErrPermission, err), missingCapability(op))
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		remedy := "no process holds it: the kernel releases the queue of a closed socket when its last packet has left"
		if holders := processes("maps", holdsRings); len(holders) > 0 {
			remedy = "AF_XDP sockets are held by " + strings.Join(holders, ", ")
		}
		return d.fail(op, queue, fmt.Errorf("%w: %w", pmd.ErrBusy, err), remedy)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return d.fail(op, queue, fmt.Errorf("%w: %w", pmd.ErrGone, err), "")
	case errors.Is(err, unix.ENETDOWN):
		return d.fail(op, queue, fmt.Errorf("%w: %w", pmd.ErrDown, err), "ip link set "+name+" up")
	case errors.Is(err, unix.EAFNOSUPPORT):
		return d.fail(op, queue, fmt.Errorf("%w: %w", pmd.ErrNotSupported, err), "the kernel is built without CONFIG_XDP_SOCKETS")
	case errors.Is(err, unix.EOPNOTSUPP):
		return d.fail(op, queue, fmt.Errorf("%w: %w", pmd.ErrNotSupported, err), d.unsupported())
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return d.fail(op, queue, err, "raise the limit of locked memory (ulimit -l, LimitMEMLOCK=) or grant CAP_IPC_LOCK")
	case errors.Is(err, unix.ERANGE):
		return d.fail(op, queue, fmt.Errorf("%w: %w", pmd.ErrNotSupported, err),
			fmt.Sprintf("the MTU of %s (%d) or of its peer is too large for native mode without multi-buffer: lower it, or set MultiBufOn", name, d.iface.mtu))
	case errors.Is(err, unix.EINVAL) && op == "bind":
		return d.fail(op, queue, fmt.Errorf("%w: %w", pmd.ErrNotSupported, err), d.unsupported())
	}
	return d.fail(op, queue, err, "")
}

// missingCapability names the capabilities for a step of Open (capabilities(7)): the kernel's EPERM does not say which one
// it has looked for.
func missingCapability(op string) string {
	switch op {
	case "bind":
		return "AF_XDP sockets need CAP_NET_RAW, and locked memory beyond ulimit -l needs CAP_IPC_LOCK"
	case "load":
		return "loading the steering program needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (CAP_SYS_ADMIN before Linux 5.8)"
	}
	return "attaching to an interface needs CAP_NET_ADMIN"
}

// unsupported returns the remedy for a feature that the device or the kernel does not have.
func (d *Device) unsupported() string {
	switch {
	case d.cfg.Copy == CopyOff:
		return "the driver has no zero-copy AF_XDP: use CopyAuto"
	case d.prog != nil && d.prog.held == nil:
		return "the driver has no native XDP: use ModeAuto or ModeGeneric"
	case d.cfg.MultiBuf != MultiBufOff:
		return fmt.Sprintf("multi-buffer (MTU %d, frames of %d bytes) needs Linux 6.6 and a driver that can", d.iface.mtu, d.cfg.arena().FrameSize())
	}
	return ""
}

// processes lists, as "name (pid N)", the processes for which holds is true of the text of a file below
// /proc/PID/, or for a folder of any file in it. Processes that may not be read are left out.
func processes(file string, holds func(text string) bool) []string {
	var out []string
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, pid := range pids {
		paths, _ := filepath.Glob(filepath.Join(pid, file, "*"))
		if len(paths) == 0 {
			paths = []string{filepath.Join(pid, file)}
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil || !holds(string(text)) {
				continue
			}
			name, _ := os.ReadFile(filepath.Join(pid, "comm"))
			out = append(out, fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), filepath.Base(pid)))
			break
		}
	}
	return out
}

// holdsRings finds mapped AF_XDP rings in /proc/PID/maps: fill rings are mapped at offset 4 GiB of a socket
// (XDP_UMEM_PGOFF_FILL_RING), and nothing else is.
func holdsRings(text string) bool {
	for line := range strings.Lines(text) {
		if strings.Contains(line, " 100000000 ") && strings.Contains(line, "socket:[") {
			return true
		}
	}
	return false
}
