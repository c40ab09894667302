package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/rtnl"
)

// This is the machine that the program runs on.
func This() Host {
	return Host{
		FS:        os.DirFS("/"),
		Env:       os.Getenv,
		Socket:    openSocket,
		Program:   loadProgram,
		Memlock:   memlock,
		Shared:    shared,
		OwnMemory: ownMemory,
		Links:     links,
		Holder:    holder,
	}
}

func openSocket() error {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// loadProgram loads the XDP program "return XDP_PASS" and closes it. It is not attached.
func loadProgram() error {
	code := [...]uint64{
		0x00000002_0000_00b7, // r0 = 2 (XDP_PASS)
		0x00000000_0000_0095, // exit
	}
	license := [...]byte{'A', 'p', 'a', 'c', 'h', 'e', 0}
	attr := struct { // the start of union bpf_attr for BPF_PROG_LOAD
		kind, count   uint32
		code, license uint64
		logLevel      uint32
		logSize       uint32
		log           uint64
		kernel, flags uint32
	}{
		kind: unix.BPF_PROG_TYPE_XDP, count: uint32(len(code)),
		code: uint64(uintptr(unsafe.Pointer(&code))), license: uint64(uintptr(unsafe.Pointer(&license))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(&code)
	runtime.KeepAlive(&license)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

func memlock() (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return 0, fmt.Errorf("cannot be read: %w", err)
	}
	return r.Cur, nil
}

// links asks the kernel about the interfaces named, or about all.
func links(names []string) ([]Link, error) {
	found, err := rtnl.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	byName := make(map[string]*netlink.LinkAttrs, len(found))
	all := make([]string, len(found))
	for i, l := range found {
		all[i] = l.Attrs().Name
		byName[all[i]] = l.Attrs()
	}
	if len(names) == 0 {
		names = all
	}
	family := netdevFamily()
	out := make([]Link, 0, len(names))
	for _, name := range names {
		a := byName[name]
		if a == nil {
			out = append(out, Link{Name: name, Missing: true})
			continue
		}
		l := fromAttrs(a)
		l.Features, l.Known = xdpFeatures(family, a.Index)
		out = append(out, l)
	}
	return out, nil
}

func fromAttrs(a *netlink.LinkAttrs) Link {
	l := Link{
		Name: a.Name, MTU: a.MTU, Queues: a.NumRxQueues,
		Up:       a.RawFlags&unix.IFF_UP != 0,
		Loopback: a.RawFlags&unix.IFF_LOOPBACK != 0,
	}
	if a.Xdp != nil && a.Xdp.Attached {
		l.Program, l.Mode = a.Xdp.ProgId, a.Xdp.AttachMode
	}
	l.ethtool()
	return l
}

// ethtool adds what only the device's driver reports: its name and how many queues are in use.
func (l *Link) ethtool() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if info, err := unix.IoctlGetEthtoolDrvinfo(fd, l.Name); err == nil {
		l.Driver = unix.ByteSliceToString(info.Driver[:])
	}
	if n := channels(fd, l.Name); n > 0 {
		l.Queues = n
	}
}

// channels returns the receive queues in use, 0 where the driver does not report them
// (ETHTOOL_GCHANNELS).
func channels(fd int, name string) int {
	const getChannels = 0x3c
	ch := struct {
		cmd, maxRx, maxTx, maxOther, maxBoth, rx, tx, other, both uint32
	}{cmd: getChannels}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&ch)}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return 0
	}
	return int(ch.rx + ch.both)
}

// Numbers of the kernel's netdev netlink family (Documentation/netlink/specs/netdev.yaml).
const (
	netdevCmdDevGet      = 1
	netdevAttrIfindex    = 1
	netdevAttrXDPFeature = 3
)

// genlHeader is the header of generic netlink: command, version and two bytes that must be zero
// (the library's type does not set them).
type genlHeader [4]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// netdevFamily returns the number of the netdev family; 0 before Linux 6.3, where there is none.
func netdevFamily() int {
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return 0
	}
	return int(family.ID)
}

// xdpFeatures asks for the XDP features of a device. It asks for each device by itself because the
// family's dumps lack the flag by which netlink knows that more follows.
func xdpFeatures(family, ifindex int) (features uint64, reported bool) {
	if family == 0 {
		return 0, false
	}
	req := nl.NewNetlinkRequest(family, 0)
	req.AddData(genlHeader{netdevCmdDevGet, 1})
	req.AddData(nl.NewRtAttr(netdevAttrIfindex, nl.Uint32Attr(uint32(ifindex))))
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil || len(msgs) != 1 || len(msgs[0]) < len(genlHeader{}) {
		return 0, false
	}
	attrs, err := nl.ParseRouteAttrAsMap(msgs[0][len(genlHeader{}):])
	bits := attrs[netdevAttrXDPFeature].Value
	if err != nil || len(bits) != 8 {
		return 0, false
	}
	return binary.NativeEndian.Uint64(bits), true
}

// holder names the process that has an XDP program, or the link that attaches it, open:
// "suricata (pid 12)". It returns "" if none is visible.
func holder(fsys fs.FS, program uint32) string {
	want := fmt.Sprintf("prog_id:\t%d\n", program)
	pids, _ := fs.Glob(fsys, "proc/[0-9]*")
	for _, dir := range pids {
		infos, err := fs.ReadDir(fsys, dir+"/fdinfo")
		if err != nil {
			continue // ended meanwhile, or another user's
		}
		for _, e := range infos {
			b, err := fs.ReadFile(fsys, path.Join(dir, "fdinfo", e.Name()))
			if errors.Is(err, fs.ErrNotExist) || !strings.Contains(string(b), want) {
				continue
			}
			comm, _ := fs.ReadFile(fsys, dir+"/comm")
			return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(comm)), path.Base(dir))
		}
	}
	return ""
}

// shared tries what the ends of a vhost-user socket exchange: a sealed file in memory, and a file for notifications.
func shared() error {
	fd, err := unix.MemfdCreate("millrace-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return fmt.Errorf("F_ADD_SEALS: %w", err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	return unix.Close(event)
}
