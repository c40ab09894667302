package shim

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

// packets is a UDP socket of a program. What the program sends is read on one loop, the home. Datagrams of the network come
// on every loop that the UDPConn has a shard on.
type packets struct {
	k       *sock
	conn    *socket.UDPConn
	home    int
	plain   atomic.Bool    // the program gets datagrams without headers; see sock.headed
	peered  atomic.Bool    // connected
	reports atomic.Bool    // there is a queue of errors (IP_RECVERR, times of what is sent)
	peer    netip.AddrPort // to which it is; sock.mu guards it
	want    atomic.Uint32  // datagramFlags of what is received

	lost     atomic.Uint64 // datagrams that no loop had space for
	segments atomic.Uint32 // UDP_SEGMENT, bytes; 0 is off
	stamps   sentStamps
	late     atomic.Bool // there was no space for a notice
	past     pastHeaders // of what a supervisor's program got without; sock.mu guards it

	// The home loop has these.
	watch  *stack.FileWatch
	full   bool     // FileWritable is watched: the program's receive buffer was full
	held   [][]byte // datagrams of the program for which the device had no space, with their headers
	hangup bool
	list   [packetBatch][]byte
	cork   cork

	draining bool // all that is written is read, whatever space the device has

	queues []packetQueue // of each loop, which has it
}

// packetQueue has the datagram for which the program's buffer had no space on a loop. Those behind wait in the stack,
// which drops what exceeds the socket's limit, and counts it.
type packetQueue struct {
	lease   socket.Lease
	waiting bool
	lost    uint64 // of the loop, which u.lost has
}

// bindPackets is bind(2) of a UDP socket.
func (k *sock) bindPackets(a netip.AddrPort) error {
	if k.packets() != nil {
		return syscall.EINVAL
	}
	network, at, err := k.localAddr("udp", a)
	if err != nil {
		return err
	}
	cfg := &socket.ListenConfig{Process: k.owner, FreeBind: k.options.freeBind, UDPOptions: k.applyUDP}
	conn, err := k.s.cfg.Stack.ListenPacketWith(context.Background(), cfg, network, at.String())
	if err != nil {
		return bare(err)
	}
	return k.open(conn)
}

// applyUDP is for ListenConfig.UDPOptions.
func (k *sock) applyUDP(u *socket.UDPOptions) {
	o := k.options
	*u = o.udp
	u.V6Only, u.Share, u.Reuse, u.User = o.v6only, o.share, o.reuse, k.user.uid
}

// bindLate binds a socket whose program has sent something without bind(2).
func (k *sock) bindLate() {
	k.ops.Lock()
	defer k.ops.Unlock()
	k.bindSent()
}

// bindSent is bindLate by the holder of ops.
func (k *sock) bindSent() {
	if k.packets() == nil && k.current() == idle && k.inRange(k.automatic(), k.bindPackets) != nil {
		k.release(syscall.EADDRNOTAVAIL) // no port is free: the program gets ENETDOWN
	}
}

func (k *sock) packets() *packets {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.udp
}

// open begins to move datagrams.
func (k *sock) open(conn *socket.UDPConn) error {
	st := k.s.cfg.Stack
	u := &packets{k: k, conn: conn, home: int(k.cookie % uint64(st.LoopCount())), queues: make([]packetQueue, st.LoopCount())}
	u.want.Store(uint32(k.options.want))
	u.segments.Store(uint32(k.options.kept[nameU(unix.UDP_SEGMENT)]))
	u.cork.on = k.options.kept[nameU(unix.UDP_CORK)] != 0
	u.reports.Store(k.queues())
	u.stamps.set(k.stampFlags(), true)
	u.plain.Store(!k.headed(false))
	var err error
	st.EnterLoop(u.home, func(in socket.LoopStack) { err = u.begin(in) })
	if err != nil {
		_ = conn.Close()
		return err
	}
	for i := range k.groups {
		_ = k.groups[i].join(conn) // setsockopt(2) has returned already
	}
	return bare(conn.OnReady(u.ready))
}

// begin enters the socket in the tables of its home loop.
func (u *packets) begin(in socket.LoopStack) (err error) {
	k := u.k
	k.mu.Lock()
	fd, id := k.fd, k.watch
	if k.state != idle {
		k.mu.Unlock()
		return syscall.ENETDOWN
	}
	k.udp, k.watch = u, 0
	k.local = k.shown(udpAddr(u.conn.LocalAddr()))
	k.mu.Unlock()
	k.enterPort(udpAddr(u.conn.LocalAddr()).Port())
	k.s.watch.remove(fd, id)
	if u.watch, err = in.Watch(fd, stack.FileReadable|stack.FilePeerClosed|stack.FileEdge, u.file); err != nil {
		k.release(0)
	}
	return err
}

func udpAddr(a net.Addr) netip.AddrPort {
	p := a.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// file handles events of the program's socket, on the home loop.
func (u *packets) file(in socket.LoopStack, ev stack.FileEvents) {
	u.hangup = u.hangup || ev&stack.FileHangup != 0
	if ev&stack.FileWritable != 0 {
		u.resume(in)
	}
	u.toStack(in)
}

// toStack sends what the program has written.
func (u *packets) toStack(in socket.LoopStack) {
	shard, ok := in.OfUDP(u.conn)
	if !ok || len(u.held) > 0 && !u.sendHeld(shard) && !u.draining {
		return
	}
	b := u.k.s.batchOf(in.Index())
	for sent := 0; ; sent += packetBatch {
		if sent >= packetLimit {
			u.watch.Again(stack.FileReadable)
			return
		}
		n, errno := b.receive(u.k.fd)
		if errno == syscall.EINTR {
			continue
		}
		if n > 0 && b.hasDescriptors(n) {
			u.k.s.stats.descriptors.Add(1)
			u.end()
			return
		}
		if n = u.written(b, n); errno != 0 || n == 0 {
			break
		}
		for i := range n {
			u.list[i] = b.datagram(i)
		}
		if !u.send(shard, u.join(u.list[:n])) && !u.draining {
			return
		}
	}
	if u.hangup {
		u.end()
	}
}

// written returns how many of n messages the program has written: at its end a socket gives empty ones, without end, in the
// batch of the last that is none.
func (u *packets) written(b *batch, n int) int {
	if n == 0 || len(b.datagram(n-1)) > 0 {
		return n
	}
	if u.hangup = u.hangup || hungUp(u.k.fd); !u.hangup {
		return n
	}
	for n > 0 && len(b.datagram(n-1)) == 0 {
		n--
	}
	return n
}

// send sends datagrams with their headers. False: the device has no space; what is left is held until Writable.
func (u *packets) send(shard socket.LoopUDPConn, all [][]byte) bool {
	if len(u.held) > 0 { // behind these
		u.hold(all)
		return false
	}
	plain := u.headSize() == 0
	for i, b := range all {
		var m [1]socket.Message
		var part [1][]byte
		if !u.parse(&m[0], &part, b, plain) {
			if u.k.byCall { // write(2), which has succeeded
				u.k.setPacketError(syscall.EDESTADDRREQ)
			}
			u.k.s.stats.datagramsDropped.Add(1)
			continue
		}
		n, err := shard.Write(m[:])
		if err != nil { // perhaps what ICMP has said of one before: sendto(2) has returned, so this one goes all the same
			before := err
			u.k.setPacketError(before)
			if n, err = shard.Write(m[:]); err == nil {
				u.failed(before)
			}
		}
		switch {
		case err != nil:
			u.k.s.stats.datagramsDropped.Add(1)
		case n == 0:
			u.hold(all[i:])
			return false
		default:
			u.k.s.stats.datagramsOut.Add(1)
			u.stamped()
		}
	}
	return true
}

func (u *packets) hold(all [][]byte) {
	for _, b := range all {
		u.held = append(u.held, bytes.Clone(b))
	}
}

// parse reads the header of a datagram. False is that it has none that can be sent.
func (u *packets) parse(m *socket.Message, part *[1][]byte, b []byte, plain bool) bool {
	m.Buffers = part[:]
	if plain {
		part[0] = b
		m.SegmentSize = u.segment(b)
		return true
	}
	d, err := decodeDatagram(b)
	switch {
	case err != nil:
		return false
	case !d.remote.IsValid() && u.peered.Load(): // to the peer
	case !d.remote.IsValid() || d.remote.Port() == 0:
		return false
	default:
		m.SetPeer(destination(d.remote))
	}
	part[0] = b[datagramSize:]
	if a := d.local.Addr().Unmap(); a.IsValid() && !a.IsUnspecified() {
		m.Local = wire.AddrFrom(a)
	}
	m.SegmentSize = u.segment(part[0])
	if n := int(d.flags); n != 0 { // UDP_SEGMENT as a control message
		m.SegmentSize = n
		if n >= len(part[0]) {
			m.SegmentSize = 0
		}
	}
	m.Interface, m.TOS, m.TTL = stackIndex(d.iface), d.tos, d.hopLimit
	return true
}

// segment returns the size of the datagrams that the bytes of one call become (UDP_SEGMENT); 0 is one.
func (u *packets) segment(b []byte) int {
	if n := int(u.segments.Load()); n < len(b) {
		return n
	}
	return 0
}

// sendHeld sends what is held. It reports whether nothing is left.
func (u *packets) sendHeld(shard socket.LoopUDPConn) bool {
	held := u.held
	u.held = nil
	return u.send(shard, held)
}

// ready handles events of a shard, on its loop.
func (u *packets) ready(in socket.LoopUDPConn, ev socket.Events) {
	loop := u.k.s.cfg.Stack.LoopOfUDP(in)
	if err := in.SocketError(); err != nil {
		u.failed(err)
	}
	if ev&socket.Readable != 0 {
		u.toProgram(loop, in)
	}
	if ev&socket.Writable != 0 && loop.Index() == u.home && len(u.held) > 0 && u.watch != nil {
		u.toStack(loop)
	}
}

// toProgram passes received datagrams to the program.
func (u *packets) toProgram(loop socket.LoopStack, in socket.LoopUDPConn) {
	q := &u.queues[loop.Index()]
	n := in.Lost()
	u.lost.Add(n - q.lost)
	q.lost = n
	for {
		if !q.waiting {
			lease, ok := in.Lease()
			if !ok {
				return
			}
			q.lease, q.waiting = lease, true
		}
		if errno := u.deliver(loop, q.lease); errno == syscall.EAGAIN || errno == syscall.ENOBUFS {
			u.awaitSpace(loop)
			return
		}
		q.lease.Release()
		q.waiting = false
	}
}

// deliver sends one datagram to the program.
func (u *packets) deliver(loop socket.LoopStack, lease socket.Lease) syscall.Errno {
	payload := lease.Payload()
	var head [datagramSize]byte
	parts := [2][]byte{nil, payload}
	u.k.mu.Lock() // other loops do this, too, one may close it, and connect(2) changes the form of datagrams
	defer u.k.mu.Unlock()
	plain := u.plain.Load()
	later := plain && u.k.byCall && (!u.peered.Load() || u.want.Load() != 0) // a call may ask for it
	if !plain || later {
		u.describe(loop, lease, &head)
	}
	if !plain {
		parts[0] = head[:]
	}
	if u.k.fd < 0 {
		return syscall.EBADF
	}
	for {
		_, errno := send(u.k.fd, &parts)
		if errno == 0 {
			u.k.s.stats.datagramsIn.Add(1)
		}
		if errno == 0 && later {
			u.past.add(head)
		}
		if errno != syscall.EINTR {
			return errno
		}
	}
}

// describe writes the header of a datagram. mu is held.
func (u *packets) describe(loop socket.LoopStack, lease socket.Lease, head *[datagramSize]byte) {
	var m socket.Message
	lease.Describe(&m)
	d := datagram{
		remote: m.Peer(), local: netip.AddrPortFrom(m.Local.Netip(), u.k.local.Port()), iface: arrivedBy(loop, &m),
		tos: m.TOS, hopLimit: m.TTL, flags: datagramFlags(u.want.Load()).with(m.Local.Is4()), lost: uint32(u.lost.Load()),
	}
	if d.flags&(wantTime|wantTimeNS|wantStamping) != 0 {
		d.at = time.Now().Add(-stack.Now().Sub(m.Time)).UnixNano()
	}
	d.encode(head[:])
}

// arrivedBy returns the index of the interface by which a datagram has come, as Linux has it: what the host sends to itself comes by the
// interface that has its destination.
func arrivedBy(loop socket.LoopStack, m *socket.Message) uint32 {
	if programIndex(m.Interface) == loopbackIndex {
		if of := loop.DeviceOf(m.Local); of != 0 {
			return programIndex(of)
		}
	}
	return programIndex(m.Interface)
}

// awaitSpace watches for space in the program's receive buffer, on the home loop.
func (u *packets) awaitSpace(loop socket.LoopStack) {
	if loop.Index() != u.home {
		u.k.s.cfg.Stack.QueueOnLoop(u.home, u.awaitSpace)
		return
	}
	if u.watch != nil {
		u.full = true
		_ = u.watch.Modify(stack.FileReadable | stack.FileWritable | stack.FilePeerClosed | stack.FileEdge)
	}
}

// resume goes on with datagrams that wait, on all loops: the program has read.
func (u *packets) resume(in socket.LoopStack) {
	if !u.full || u.watch == nil {
		return
	}
	u.full = false
	_ = u.watch.Modify(stack.FileReadable | stack.FilePeerClosed | stack.FileEdge)
	u.notifyLate()
	for i := range u.queues {
		if i == in.Index() {
			u.onLoop(in)
		} else {
			in.Stack().QueueOnLoop(i, u.onLoop)
		}
	}
}

func (u *packets) onLoop(in socket.LoopStack) {
	if shard, ok := in.OfUDP(u.conn); ok {
		u.toProgram(in, shard)
	}
}

// end releases the socket, on the home loop.
func (u *packets) end() {
	if u.watch == nil {
		return
	}
	u.watch.Remove()
	u.watch = nil
	u.k.release(0)
}

// leave takes the socket out of its home loop, with what the program has sent by now, and gives it back to the watcher. It is not bound
// then.
func (u *packets) leave() (err error) {
	k := u.k
	k.s.cfg.Stack.EnterLoop(u.home, func(in socket.LoopStack) {
		if u.watch == nil {
			err = syscall.ENETDOWN
			return
		}
		u.toStack(in)
		if u.watch == nil { // the program has closed it
			err = syscall.ENETDOWN
			return
		}
		u.watch.Remove()
		u.watch = nil
	})
	if err != nil {
		return err
	}
	u.close()
	k.s.leavePort(k)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == released {
		return syscall.ENETDOWN
	}
	k.udp, k.local = nil, k.chosenLocal()
	k.watch, err = k.s.watch.add(k.fd, unix.EPOLLRDHUP|unix.EPOLLIN, k.watched)
	return err
}

// chosenLocal is the name of a socket whose port was of the stack's choice, and is free again.
func (k *sock) chosenLocal() netip.AddrPort {
	if !k.chosen.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(k.chosen.Addr(), 0)
}

// close frees what takes loops.
func (u *packets) close() {
	_ = u.conn.OnReady(nil) // it is open
	st := u.k.s.cfg.Stack
	for i := range u.queues {
		st.EnterLoop(i, func(socket.LoopStack) {
			if q := &u.queues[i]; q.waiting {
				q.lease.Release()
				q.waiting = false
			}
		})
	}
	_ = u.conn.Close()
}
