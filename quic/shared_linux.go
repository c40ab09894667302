package quic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// SharedConn is a UDP socket of the kernel that processes share, one of which reads it: the newest. It passes packets of the connections
// that another one has to that, by a relay of each generation, and the others read their relays. All of them send by the socket.
//
// A process that is to replace another gets the socket by Pass and begins to read with Take, when the other has called Leave. A packet
// that a relay has no room for is dropped, as a network drops it.
type SharedConn struct {
	*kernelConn
	g *Generation

	mu      sync.Mutex
	changed *sync.Cond // on mu: role has changed
	role    sharedRole
	in      *net.UnixConn // the relay to this process; nil where none was made
	relays  atomic.Pointer[map[uint8]*relay]
	ended   bool // the process that reads the socket has
	given   bool // Take does not follow
	closed  bool
	expired bool // the read deadline has passed

	buf  []byte // of the relay
	name unix.RawSockaddrInet6
	peer *net.UDPAddr
}

// sharedRole is the part of a process that has a SharedConn.
type sharedRole uint8

const (
	waits   sharedRole = iota // for Take
	reads                     // the socket
	relayed                   // reads its relay
)

// NewSharedConn returns a conn over a socket for processes of a generation. With reads it reads the socket; otherwise Take begins that. It
// takes conn unless the kernel cannot merge datagrams (UDP_GRO, Linux 5.0), which is an error.
func NewSharedConn(conn *net.UDPConn, g *Generation, begin bool) (*SharedConn, error) {
	k := newKernelConn(conn)
	if k == nil {
		return nil, fmt.Errorf("%w: UDP_GRO", errors.ErrUnsupported)
	}
	c := &SharedConn{kernelConn: k.(*kernelConn), g: g}
	c.changed = sync.NewCond(&c.mu)
	c.relays.Store(&map[uint8]*relay{})
	if begin {
		c.role = reads
	}
	return c, nil
}

// Passed is the part of a SharedConn that another process gets: the socket, and a relay to each process before it. The files are the
// caller's.
type Passed struct {
	Socket *os.File
	Relays map[uint8]*os.File
}

// Close closes the files.
func (p *Passed) Close() {
	p.Socket.Close()
	for _, f := range p.Relays {
		f.Close()
	}
}

// Pass returns the parts for another process, with a relay to this one.
func (c *SharedConn) Pass() (p *Passed, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("quic: socketpair: %w", err)
	}
	own := os.NewFile(uintptr(fds[0]), "relay")
	defer own.Close()
	p = &Passed{Relays: map[uint8]*os.File{c.g.number: os.NewFile(uintptr(fds[1]), "relay")}}
	in, err := net.FileConn(own)
	if err == nil {
		p.Socket, err = c.File()
	}
	if err != nil {
		p.Relays[c.g.number].Close()
		return nil, err
	}
	c.mu.Lock()
	if c.in != nil { // of a process that has not replaced this one
		c.in.Close()
	}
	c.in = in.(*net.UnixConn)
	c.mu.Unlock()
	for number, r := range *c.relays.Load() {
		if f, err := r.conn.File(); err == nil && !r.gone.Load() {
			p.Relays[number] = f
		}
	}
	return p, nil
}

// Inherit has the conn pass packets to the processes before this one. It takes the files.
func (c *SharedConn) Inherit(relays map[uint8]*os.File) error {
	all := map[uint8]*relay{}
	var errs []error
	for number, f := range relays {
		conn, err := net.FileConn(f)
		if f.Close(); err != nil {
			errs = append(errs, err)
			continue
		}
		all[number] = newRelay(conn.(*net.UnixConn))
	}
	c.relays.Store(&all)
	return errors.Join(errs...)
}

// Generations returns the generations of the processes before this one that are still there.
func (c *SharedConn) Generations() (list []uint8) {
	for number, r := range *c.relays.Load() {
		if !r.gone.Load() {
			list = append(list, number)
		}
	}
	return list
}

// Take reads the socket from now on, and Leave the relay. Another process does the other.
func (c *SharedConn) Take()  { c.become(reads) }
func (c *SharedConn) Leave() { c.become(relayed) }

// Give leaves the socket for good. When the process that reads it ends, this one closes it, so that another can open the address.
func (c *SharedConn) Give() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given = true
	c.changed.Broadcast()
}

func (c *SharedConn) become(r sharedRole) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.role == r || r == relayed && c.in == nil {
		return
	}
	c.role, c.ended = r, false
	c.changed.Broadcast()
	if !c.expired { // ends the read under way
		c.wakeLocked()
	}
}

// wakeLocked ends reads under way. The next one of each sets its deadline again.
func (c *SharedConn) wakeLocked() {
	past := time.Unix(1, 0)
	_ = c.kernelConn.SetReadDeadline(past)
	if c.in != nil {
		_ = c.in.SetReadDeadline(past)
	}
}

// SetReadDeadline implements net.PacketConn for quic-go, which ends its read by a deadline in the past and sets no other.
func (c *SharedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expired = !t.IsZero(); c.expired {
		c.changed.Broadcast()
		c.wakeLocked()
	}
	return nil
}

// Close implements net.PacketConn.
func (c *SharedConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	if c.in != nil {
		c.in.Close()
	}
	c.mu.Unlock()
	for _, r := range *c.relays.Load() {
		r.close()
	}
	return c.kernelConn.Close()
}

// ready waits until there is something to read from, and returns what: the socket, or the relay.
func (c *SharedConn) ready() (*net.UnixConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return nil, net.ErrClosed
		case c.expired:
			return nil, os.ErrDeadlineExceeded
		case c.role == relayed && c.kernelConn.pending(): // received before it left the socket
			return nil, nil
		case c.role == relayed && (!c.ended || c.given):
			return c.in, c.in.SetReadDeadline(time.Time{})
		case c.role == reads:
			return nil, c.kernelConn.SetReadDeadline(time.Time{})
		}
		c.changed.Wait()
	}
}

// ReadBatch reads packets of this process's connections, and of new ones, and passes others on.
func (c *SharedConn) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	for {
		in, err := c.ready()
		if err != nil {
			return 0, err
		}
		n := 0
		if in != nil {
			n, err = c.receiveRelayed(in, &ms[0])
		} else if n, err = c.kernelConn.ReadBatch(ms, flags); n > 0 {
			n = c.sort(ms[:n])
		}
		switch {
		case n > 0:
			return n, nil
		case err == nil || errors.Is(err, os.ErrDeadlineExceeded) || in != nil && c.replaced(in):
		case in != nil:
			if c.readerEnded() {
				return 0, errors.Join(err, c.Close())
			}
		default:
			return 0, err
		}
	}
}

// readerEnded notes that the process that reads the socket has ended, and reports whether this one is to give the socket up.
func (c *SharedConn) readerEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.given
}

// replaced reports whether another relay, or the socket, is read in place of one.
func (c *SharedConn) replaced(in *net.UnixConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && (in != c.in || c.role != relayed)
}

func (c *SharedConn) direct() {}

// sort passes the packets of other processes on, and copies those of this one to the front. It returns how many these are. Messages keep
// their buffers: quic-go has them in an array of its own.
func (c *SharedConn) sort(ms []ipv4.Message) (n int) {
	relays := *c.relays.Load()
	if len(relays) == 0 {
		return len(ms)
	}
	for i := range ms {
		m := &ms[i]
		if r := relays[c.g.of(m.Buffers[0][:m.N])]; r != nil && !r.gone.Load() {
			r.pass(m)
			continue
		}
		if to := &ms[n]; n < i {
			to.N, to.NN = copy(to.Buffers[0], m.Buffers[0][:m.N]), copy(to.OOB, m.OOB[:m.NN])
			to.Addr, to.Flags = m.Addr, m.Flags
		}
		n++
	}
	return n
}

// A message of a relay has the address of the peer (struct sockaddr_in6 or sockaddr_in), the length of the control messages, those, and the
// packet. Both processes are of one machine: all is in its byte order.
const (
	relayName   = int(unsafe.Sizeof(unix.RawSockaddrInet6{}))
	relayHeader = relayName + 2
	relayMost   = relayHeader + oobRoom + trainRoom
)

// receiveRelayed reads one packet from the relay.
func (c *SharedConn) receiveRelayed(in *net.UnixConn, m *ipv4.Message) (int, error) {
	if c.buf == nil {
		c.buf = make([]byte, relayMost)
	}
	n, err := in.Read(c.buf)
	if err != nil {
		return 0, err
	}
	b := c.buf[:n]
	if n < relayHeader || len(b) < relayHeader+int(binary.NativeEndian.Uint16(b[relayName:])) {
		return 0, nil
	}
	name := (*unix.RawSockaddrInet6)(unsafe.Pointer(&b[0]))
	if c.peer == nil || *name != c.name {
		c.name, c.peer = *name, addrOf(name)
	}
	oob := b[relayHeader:][:binary.NativeEndian.Uint16(b[relayName:])]
	m.NN = copy(m.OOB, oob)
	m.N = copy(m.Buffers[0], b[relayHeader+len(oob):])
	m.Addr, m.Flags = c.peer, 0
	return 1, nil
}

// relay passes packets to a process of an earlier generation.
type relay struct {
	conn    *net.UnixConn
	queue   chan []byte
	gone    atomic.Bool // the process has ended, or does not read
	dropped atomic.Uint64
	once    sync.Once
	end     chan struct{}
}

// relayQueue bounds the packets that wait for a process.
const relayQueue = 1024

func newRelay(conn *net.UnixConn) *relay {
	r := &relay{conn: conn, queue: make(chan []byte, relayQueue), end: make(chan struct{})}
	go r.run()
	go func() { // the process never writes: this returns at its end
		_, _ = conn.Read(make([]byte, 1))
		r.close()
	}()
	return r
}

// run writes what is queued until the process has ended.
func (r *relay) run() {
	defer r.close()
	for {
		select {
		case b := <-r.queue:
			if _, err := r.conn.Write(b); err != nil {
				return
			}
		case <-r.end:
			return
		}
	}
}

func (r *relay) close() {
	r.once.Do(func() {
		r.gone.Store(true)
		close(r.end)
		r.conn.Close()
	})
}

// pass queues a packet, or drops it.
func (r *relay) pass(m *ipv4.Message) {
	b := make([]byte, relayHeader+m.NN+m.N)
	encodeName(b, m.Addr)
	binary.NativeEndian.PutUint16(b[relayName:], uint16(m.NN))
	copy(b[relayHeader:], m.OOB[:m.NN])
	copy(b[relayHeader+m.NN:], m.Buffers[0][:m.N])
	select {
	case r.queue <- b:
	default:
		r.dropped.Add(1)
	}
}

// encodeName writes an address as addrOf reads it.
func encodeName(b []byte, addr net.Addr) {
	a, ok := addr.(*net.UDPAddr)
	if !ok {
		return
	}
	name := (*unix.RawSockaddrInet6)(unsafe.Pointer(&b[0]))
	binary.BigEndian.PutUint16(b[2:], uint16(a.Port))
	if ip := a.IP.To4(); ip != nil && len(a.IP) == net.IPv4len {
		name.Family = unix.AF_INET
		copy(b[4:], ip)
		return
	}
	name.Family = unix.AF_INET6
	copy(name.Addr[:], a.IP)
	scope, _ := strconv.ParseUint(a.Zone, 10, 32) // addrOf writes numbers
	name.Scope_id = uint32(scope)
}
