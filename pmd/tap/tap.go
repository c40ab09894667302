// Package tap drives a TAP interface: a virtual Ethernet device of Linux whose other end is this program
// (Documentation/networking/tuntap.rst).
//
// What Linux sends on the interface, Rx receives, and what Tx sends, Linux receives. Each packet
// costs a system call, readv(2) or writev(2) straight into or out of its frames, so this driver is for
// machines where nothing faster is permitted, for tests against Linux, and for traffic with the
// machine that the program runs on.
//
// The driver enables no offload (TUNSETOFFLOAD), so the kernel fills in checksums and cuts large packets
// before it passes them on, and VLAN tags are inside of the packet.
package tap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// DefaultHeadroom is the space in front of a received packet, in bytes, as AF_XDP leaves it: headers that are pushed, such
// as those of a tunnel, then fit whatever driver a packet came from.
const DefaultHeadroom = 256

// Config describes what Open opens. Pools is required.
type Config struct {
	// Interface names an existing TAP interface, or the one to make; "" lets the kernel choose,
	// and so does a name with %d in it. Close removes an interface that Open has made.
	Interface string

	// Pools supply the frames, one for each queue. Linux keeps a flow on one queue.
	Pools []*ring.Pool

	MTU      int  // to set; 0 leaves it as it is (1500 of a new interface)
	Up       bool // bring the interface up
	Headroom int  // bytes in front of a received packet; 0 is DefaultHeadroom
}

// Device is an open interface.
type Device struct {
	Queues []*Queue // in the order of Config.Pools; each belongs to one loop
	Name   string   // of the interface

	cfg     Config
	index   int
	mtu     int
	mac     [6]byte // of this program's end of the link
	control int     // a socket for ioctls, which stays in the interface's network namespace

	mu      sync.Mutex // guards what follows: Info runs in any goroutine, also while Close does
	links   *netlink.Handle
	dropped uint64 // TxDropped of the interface at Open; after Close the drops in between
}

// Open opens or makes an interface in the network namespace of the calling thread. It needs
// CAP_NET_ADMIN, or an interface that `ip tuntap add mode tap user ...` has made for the user.
func Open(cfg Config) (*Device, error) {
	if cfg.Headroom <= 0 {
		cfg.Headroom = DefaultHeadroom
	}
	d := &Device{Name: cfg.Interface, cfg: cfg, control: -1}
	if len(cfg.Pools) == 0 {
		return nil, d.fail("open", 0, errors.New("no pool: each queue needs one to receive into"), "")
	}
	for _, p := range cfg.Pools {
		if size := p.Arena().FrameSize(); cfg.Headroom > size/2 {
			return nil, d.fail("open", 0, fmt.Errorf("headroom of %d bytes is more than half of a frame of %d", cfg.Headroom, size), "")
		}
	}
	if err := d.open(); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// open attaches the queues before it configures the interface, which the first of them may have made. The control socket
// is opened first, in the namespace of the calling thread: later ioctls must reach the same interface from any thread.
func (d *Device) open() (err error) {
	if d.control, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return d.explain("open", 0, err)
	}
	for i, pool := range d.cfg.Pools {
		fd, err := d.attach()
		if err != nil {
			return d.explain("attach", i, err)
		}
		d.Queues = append(d.Queues, &Queue{dev: d, id: i, fd: fd, pool: pool})
	}
	if err := d.configure(); err != nil {
		return d.explain("configure", 0, err)
	}
	i, err := net.InterfaceByName(d.Name)
	if err != nil {
		return d.explain("open", 0, err)
	}
	d.index, d.mtu = i.Index, i.MTU
	copy(d.mac[:], i.HardwareAddr)
	// The interface's own address is that of Linux's end of the link. This end needs another one: with the same address
	// each end would take the frames of the other for its own.
	d.mac[5] ^= 1
	for _, q := range d.Queues {
		q.resize(d.mtu)
	}
	if d.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return d.explain("open", 0, err)
	}
	d.dropped = d.kernelDrops() // an existing interface has a history that is not this driver's
	return nil
}

// attach opens one queue of the interface, which the first one makes where it is not there. The kernel removes it with
// the last descriptor, unless it is persistent (TUNSETPERSIST, which `ip tuntap add` sets).
func (d *Device) attach() (int, error) {
	// Each open of the clone device is one queue, so that each loop has a descriptor of its own to poll.
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := d.setInterface(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// setInterface makes fd a queue of the interface (TUNSETIFF, linux/if_tun.h). IFF_NO_PI leaves out the four bytes of
// struct tun_pi in front of each packet. With IFF_MULTI_QUEUE (Linux 3.8) each descriptor is a queue, and the kernel keeps
// a flow on the queue that sent for it last.
func (d *Device) setInterface(fd int) error {
	name := d.Name
	if name == "" {
		name = "tap%d"
	}
	r, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("interface name %q: %w", name, err)
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI)
	// An existing interface keeps its kind, and TUNSETIFF fails with EINVAL where they differ.
	if len(d.cfg.Pools) > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	r.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return err
	}
	d.Name = r.Name()
	return nil
}

// configure sets the MTU and brings the interface up, where the configuration says so (netdevice(7)). The MTU comes first:
// packets that Linux queues before would have the old one.
func (d *Device) configure() error {
	r, err := unix.NewIfreq(d.Name)
	if err != nil {
		return err
	}
	if d.cfg.MTU != 0 {
		r.SetUint32(uint32(d.cfg.MTU))
		if err := unix.IoctlIfreq(d.control, unix.SIOCSIFMTU, r); err != nil {
			return fmt.Errorf("MTU %d: %w", d.cfg.MTU, err)
		}
	}
	if !d.cfg.Up {
		return nil
	}
	if err := unix.IoctlIfreq(d.control, unix.SIOCGIFFLAGS, r); err != nil {
		return err
	}
	r.SetUint16(r.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(d.control, unix.SIOCSIFFLAGS, r)
}

// kernelDrops returns the packets that Linux has dropped because no queue had room, since the interface was made. It
// counts them for the interface, not for a queue: its transmit drops (rtnl_link_stats64.tx_dropped), because what this
// driver receives is what Linux transmits.
func (d *Device) kernelDrops() uint64 {
	link, err := d.links.LinkByIndex(d.index)
	if err != nil || link.Attrs().Statistics == nil {
		return 0
	}
	return link.Attrs().Statistics.TxDropped
}

// drops returns the packets dropped since Open; after Close those until then. A counter below that of Open counts as none.
func (d *Device) drops() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.links == nil {
		return d.dropped
	}
	if n := d.kernelDrops(); n > d.dropped {
		return n - d.dropped
	}
	return 0
}

// Close closes every queue, and with the last one removes an interface that Open has made. The loops must have stopped.
func (d *Device) Close() error {
	var errs []error
	final := uint64(0)
	// The counter is gone with the interface, which Close of the last queue removes unless it is persistent.
	if d.links != nil {
		final = d.drops()
	}
	for _, q := range d.Queues {
		errs = append(errs, q.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.links != nil {
		d.links.Close()
		d.links, d.dropped = nil, final
	}
	if d.control >= 0 {
		unix.Close(d.control)
		d.control = -1
	}
	return errors.Join(errs...)
}

// fail returns an error with the device and the queue. Before the kernel has chosen a name, the device is "tap".
func (d *Device) fail(op string, queue int, err error, remedy string) error {
	name := d.Name
	if name == "" {
		name = "tap"
	}
	return &pmd.OpError{Op: op, Device: name, Queue: queue, Err: err, Remedy: remedy}
}

// explain turns an error of the kernel into one of pmd's, with a remedy. TUNSETIFF returns EINVAL for an interface of
// another kind and EBUSY where another process has it open. EBADFD is of a file whose interface was deleted, EIO of one
// whose interface is down.
func (d *Device) explain(op string, queue int, err error) error {
	is := func(target error, remedy string) error {
		return d.fail(op, queue, fmt.Errorf("%w: %w", target, err), remedy)
	}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return is(pmd.ErrPermission, "a TAP interface needs CAP_NET_ADMIN, or one made for you: ip tuntap add mode tap user $USER")
	case errors.Is(err, unix.EBUSY):
		return is(pmd.ErrBusy, holder(d.Name))
	case errors.Is(err, unix.ENOENT) && op == "attach":
		return is(pmd.ErrNotSupported, "/dev/net/tun is missing: modprobe tun")
	case errors.Is(err, unix.EINVAL) && op == "attach":
		return is(pmd.ErrNotSupported, "the interface is there and is no TAP interface, or its number of queues cannot change: see ip -d link")
	case errors.Is(err, unix.EBADFD), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return is(pmd.ErrGone, "")
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ENETDOWN):
		return is(pmd.ErrDown, "ip link set "+d.Name+" up")
	}
	return d.fail(op, queue, err, "")
}

// holder names the process that has the interface open, where /proc may be read: the kernel lists the interface of a
// descriptor in /proc/PID/fdinfo as "iff:".
func holder(name string) string {
	files, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(text), "iff:\t"+name+"\n") {
			continue
		}
		pid := strings.Split(f, "/")[2]
		comm, _ := os.ReadFile("/proc/" + pid + "/comm")
		return fmt.Sprintf("it is held by %s (process %s)", strings.TrimSpace(string(comm)), pid)
	}
	return "another program holds it"
}
