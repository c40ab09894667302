package afpacket

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
)

// A block is the unit that the kernel passes to the driver. It must hold the largest packet (mostPacket): the kernel cuts
// off what is beyond the block. The smaller it is, the sooner it is full. Slots need no larger memory than slotBlock in
// one piece.
const (
	blockSize    = 576 << 10
	slotBlock    = 128 << 10
	blockTimeout = 1 // ms, the least there is
)

// iface holds the properties of an interface that the driver uses.
type iface struct {
	index, mtu int
	mac        [6]byte
}

// lookUp finds an interface in the network namespace of the calling thread; ENODEV where there is none. The driver keeps
// the index, not the name: a name can move to another interface.
func lookUp(name string) (f iface, err error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		var errno unix.Errno
		if errors.As(err, &errno) && errno != unix.ENODEV && errno != unix.ENXIO {
			return f, err
		}
		return f, unix.ENODEV // package net has an error of its own for it
	}
	f.index, f.mtu = i.Index, i.MTU
	copy(f.mac[:], i.HardwareAddr)
	return f, nil
}

// htons converts to network byte order, in which packet(7) has protocols.
func htons(v uint16) uint16 { return v<<8 | v>>8 }

// rxSocket returns a bound socket whose filter rejects all packets, and its ring. op names the step that
// failed.
func rxSocket(c *Config, f iface) (fd int, r rxRing, op string, err error) {
	// Protocol 0 receives nothing until the socket is bound, and from then on its filter rejects all. With a protocol the
	// socket would receive from every interface between socket(2) and bind(2).
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, r, "socket", err
	}
	if r, op, err = prepare(fd, c, f); err != nil {
		if r != nil {
			r.unmap()
		}
		unix.Close(fd)
		return -1, nil, op, err
	}
	return fd, r, "", nil
}

// prepare makes a new socket a receiving one. The ring is the caller's to unmap, whatever failed. The order is the
// kernel's: version and virtio_net_hdr cannot change once there is a ring. PACKET_IGNORE_OUTGOING (Linux 4.20) leaves out
// what this machine sends, or a forwarding loop would receive its own packets.
func prepare(fd int, c *Config, f iface) (r rxRing, op string, err error) {
	if err = setFilter(fd, nothing.socket()); err != nil {
		return r, "filter", err
	}
	version := unix.TPACKET_V3
	if c.Offload && enlarge(fd, c.Ring) {
		version = unix.TPACKET_V2
	}
	for _, o := range []struct{ opt, v int }{
		{unix.PACKET_VERSION, version},
		{unix.PACKET_VNET_HDR, 1},
		{unix.PACKET_IGNORE_OUTGOING, 1},
	} {
		if err = unix.SetsockoptInt(fd, unix.SOL_PACKET, o.opt, o.v); err != nil {
			return r, "socket", err
		}
	}
	if r, err = mapRing(fd, version, c.Ring, f.mtu); err != nil {
		return nil, "ring", err
	}
	if err = bind(fd, f.index, unix.ETH_P_ALL); err != nil {
		return r, "bind", err
	}
	if c.Promiscuous {
		m := unix.PacketMreq{Ifindex: int32(f.index), Type: unix.PACKET_MR_PROMISC}
		if err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return r, "promiscuous", err
		}
	}
	return r, "", nil
}

// enlarge has the receive queue of a socket hold size bytes of large packets, and reports whether it could: beyond
// net.core.rmem_max that needs CAP_NET_ADMIN. The default would hold three.
func enlarge(fd, size int) bool {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) == nil
}

// mapRing makes the ring of the version that was negotiated.
func mapRing(fd, version, size, mtu int) (rxRing, error) {
	if version == unix.TPACKET_V2 {
		s, err := mapSlots(fd, size, slotSize(mtu))
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	b, err := mapBlocks(fd, size)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// bind binds a packet socket to an interface; protocol 0 only sends.
func bind(fd, index int, protocol uint16) error {
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(protocol), Ifindex: index})
}

// joinFanout makes the socket one of a group whose members each receive a part of the flows. The hash is symmetric: both
// directions of a flow come to the same queue. The first member has the kernel choose an unused group id
// (PACKET_FANOUT_FLAG_UNIQUEID), so that two programs never share a group.
func joinFanout(fd int, first bool, group int) (int, error) {
	const kind = unix.PACKET_FANOUT_HASH | unix.PACKET_FANOUT_FLAG_IGNORE_OUTGOING
	if !first {
		return group, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, kind<<16|group)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, (kind|unix.PACKET_FANOUT_FLAG_UNIQUEID)<<16); err != nil {
		return 0, err
	}
	v, err := unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
	return v & 0xffff, err
}

// setFilter attaches a classic BPF program to a socket, in place of the one before (SO_ATTACH_FILTER). The kernel copies it
// and changes the pointer, so each packet meets the old or the new program.
func setFilter(fd int, prog []unix.SockFilter) error {
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		uintptr(unsafe.Pointer(&f)), unsafe.Sizeof(f), 0)
	runtime.KeepAlive(prog)
	if errno != 0 {
		return errno
	}
	return nil
}

// explain turns an error of the kernel into one of pmd's, with a remedy.
func (d *Device) explain(op string, queue int, err error) error {
	e := &pmd.OpError{Op: op, Device: d.cfg.Interface, Queue: queue, Err: err}
	is := func(target error, remedy string) error {
		e.Err, e.Remedy = fmt.Errorf("%w: %w", target, err), remedy
		return e
	}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		if op == "exclusive" {
			return is(pmd.ErrPermission, "a filter at the ingress hook needs CAP_NET_ADMIN")
		}
		return is(pmd.ErrPermission, "packet sockets need CAP_NET_RAW")
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		if op == "open" {
			return is(pmd.ErrGone, "there is no such interface in this network namespace: see ip link")
		}
		return is(pmd.ErrGone, "")
	case errors.Is(err, unix.ENETDOWN):
		return is(pmd.ErrDown, "ip link set "+d.cfg.Interface+" up")
	case errors.Is(err, unix.EAFNOSUPPORT):
		return is(pmd.ErrNotSupported, "the kernel is built without CONFIG_PACKET")
	case op == "exclusive" && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP)):
		return is(pmd.ErrNotSupported, "the kernel is built without CONFIG_NET_SCH_INGRESS or CONFIG_NET_CLS_BPF")
	case errors.Is(err, unix.ENOMEM):
		e.Remedy = "a smaller Ring needs less memory of the kernel"
	}
	return e
}

// linkEvery is the interval at which an idle queue checks its interface: the ring does not report that it goes down or
// away.
const linkEvery = 10 * time.Millisecond

// link is the state of an interface as a queue last saw it.
type link struct {
	index int
	err   error      // of the last check: nil, ENETDOWN or ENODEV
	next  clock.Time // when to ask again
}

// check returns ENETDOWN or ENODEV while the interface is down or gone.
func (l *link) check(fd int, now clock.Time) error {
	if now < l.next && l.next < now.Add(2*linkEvery) {
		return l.err
	}
	l.next = now.Add(linkEvery)
	if l.err = state(fd, l.index); l.err == nil {
		// The socket keeps the ENETDOWN of a link that has been down until SO_ERROR is read;
		// with it poll(2) would return at once for ever.
		_, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	}
	return l.err
}

// state asks the kernel by the socket, which stays in its network namespace. An interface keeps its index when it is
// renamed, and one that takes its name later has another: only the index identifies what the socket is bound to.
// Flags are read by name, so a rename between the two calls makes it ask again.
func state(fd int, index int) error {
	r, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	for range maxRenames {
		r.SetUint32(uint32(index))
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, r); err != nil {
			return unix.ENODEV
		}
		named := *r
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, &named); err != nil || int(named.Uint32()) != index {
			continue
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
			continue
		}
		if r.Uint16()&unix.IFF_UP == 0 {
			return unix.ENETDOWN
		}
		return nil
	}
	return nil // it exists; the next check reads its flags
}

// maxRenames bounds the repetitions of state for an interface that is renamed meanwhile.
const maxRenames = 3
