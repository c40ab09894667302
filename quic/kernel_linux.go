package quic

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// kernelConn is a socket of the kernel that receives merged datagrams (UDP_GRO): one read returns all
// datagrams of a burst in one buffer, and the kernel does not cut into packets what a sender on the
// same machine passed as one (UDP_SEGMENT). ReadBatch returns them one by one.
//
// One goroutine reads: that of quic-go's transport. All other methods are the socket's.
type kernelConn struct {
	*net.UDPConn
	raw  syscall.RawConn
	read func(fd uintptr) bool // receive, made once: a closure for each read would be an allocation

	msgs  [trains]mmsghdr
	names [trains]unix.RawSockaddrInet6 // of either family
	pairs [trains]unix.Iovec
	oob   [trains][oobRoom]byte
	data  []byte // trains of trainRoom

	n, at int           // messages received, and the one that ReadBatch is at
	errno syscall.Errno // of the last receive
	train train
	since int // datagrams returned since the reader last slept or yielded

	name  unix.RawSockaddrInet6 // of peer
	peer  *net.UDPAddr
	strip stripFunc // set before the first read
}

// train is the rest of a message: datagrams of one size, of which the last may be shorter.
type train struct {
	data []byte
	size int
	oob  []byte
	addr *net.UDPAddr
}

const (
	trains    = 8       // messages of a recvmmsg(2)
	trainRoom = 1 << 16 // more than the longest message has
	oobRoom   = 128
	// yieldAfter makes the reader let the connections run that the datagrams are for. While more arrive it never blocks,
	// and quic-go drops what is above 256 for a connection.
	yieldAfter = 192
)

// mmsghdr is struct mmsghdr of <sys/socket.h>.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// newKernelConn returns conn with UDP_GRO, or nil where the kernel has none (before Linux 5.0).
func newKernelConn(conn *net.UDPConn) net.PacketConn {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) })
	if errors.Join(e, err) != nil {
		return nil
	}
	c := &kernelConn{UDPConn: conn, raw: raw, data: make([]byte, trains*trainRoom)}
	c.read = c.receive
	for i := range c.msgs {
		p := &c.pairs[i]
		p.Base = &c.data[i*trainRoom]
		p.SetLen(trainRoom)
		h := &c.msgs[i].hdr
		h.Name, h.Iov, h.Control = (*byte)(unsafe.Pointer(&c.names[i])), p, &c.oob[i][0]
		h.SetIovlen(1)
	}
	return c
}

// receive reads what has arrived. False has the runtime wait until more arrives.
func (c *kernelConn) receive(fd uintptr) bool {
	for i := range c.msgs {
		h := &c.msgs[i].hdr
		h.Namelen = uint32(unsafe.Sizeof(c.names[i]))
		h.SetControllen(oobRoom)
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&c.msgs[0])), trains, unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			c.since = 0
			return false
		}
		c.n, c.at, c.errno = int(n), 0, errno
		return true
	}
}

// ReadBatch reads datagrams that have arrived, at least one, each into the first buffer of a message. Messages
// of one peer share their address.
func (c *kernelConn) ReadBatch(ms []ipv4.Message, _ int) (int, error) {
	if c.since >= yieldAfter {
		c.since = 0
		runtime.Gosched()
	}
	for {
		for len(c.train.data) == 0 {
			if err := c.next(); err != nil {
				return 0, err
			}
		}
		n := 0
		for n < len(ms) && (len(c.train.data) > 0 || c.at < c.n && c.begin()) {
			if c.fill(&ms[n]) {
				n++
			}
			c.since++
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (c *kernelConn) setStrip(f stripFunc) { c.strip = f }

// next begins with the next train, and receives where there is none.
func (c *kernelConn) next() error {
	if c.at == c.n {
		if err := c.raw.Read(c.read); err != nil {
			return err
		}
		if c.errno != 0 {
			return &net.OpError{Op: "read", Net: "udp", Source: c.LocalAddr(), Err: os.NewSyscallError("recvmmsg", c.errno)}
		}
	}
	c.begin()
	return nil
}

// begin takes message at apart. It reports whether there is data: QUIC has no empty datagrams.
func (c *kernelConn) begin() bool {
	m := &c.msgs[c.at]
	t := &c.train
	t.data = c.data[c.at*trainRoom:][:m.n]
	t.oob, t.size = splitControl(c.oob[c.at][:m.hdr.Controllen])
	if t.size == 0 {
		t.size = int(m.n)
	}
	if name := &c.names[c.at]; c.peer == nil || *name != c.name {
		c.name, c.peer = *name, addrOf(name)
	}
	t.addr = c.peer
	c.at++
	return m.n > 0
}

// pending reports whether datagrams have been received that ReadBatch has not returned. It is called by the goroutine that reads.
func (c *kernelConn) pending() bool { return len(c.train.data) > 0 || c.at < c.n }

// fill cuts one datagram off the train. It reports false where that is dropped.
func (c *kernelConn) fill(m *ipv4.Message) bool {
	t := &c.train
	size := min(t.size, len(t.data))
	from := 0
	if c.strip != nil {
		if from = c.strip(t.addr, t.data[:size]); from < 0 || from >= size {
			t.data = t.data[size:]
			return false
		}
	}
	m.N = copy(m.Buffers[0], t.data[from:size])
	m.NN = copy(m.OOB, t.oob)
	m.Addr, m.Flags = t.addr, 0
	t.data = t.data[size:]
	return true
}

// splitControl returns the control messages without that of UDP_GRO, and the size of datagrams that it states, 0
// for one datagram. The kernel has put it first.
func splitControl(oob []byte) (rest []byte, size int) {
	if len(oob) < unix.CmsgSpace(4) {
		return oob, 0
	}
	h, body, rest, err := unix.ParseOneSocketControlMessage(oob)
	if err != nil || h.Level != unix.IPPROTO_UDP || h.Type != unix.UDP_GRO || len(body) < 4 {
		return oob, 0
	}
	return rest, int(binary.NativeEndian.Uint32(body))
}

// addrOf returns the address in a struct sockaddr_in or sockaddr_in6.
func addrOf(name *unix.RawSockaddrInet6) *net.UDPAddr {
	b := (*[unix.SizeofSockaddrInet6]byte)(unsafe.Pointer(name))
	a := &net.UDPAddr{Port: int(binary.BigEndian.Uint16(b[2:]))} // in both at the same place
	if name.Family == unix.AF_INET {
		a.IP = net.IP(append([]byte(nil), b[4:8]...))
		return a
	}
	a.IP = append(net.IP(nil), name.Addr[:]...)
	if name.Scope_id != 0 {
		a.Zone = strconv.Itoa(int(name.Scope_id))
	}
	return a
}
