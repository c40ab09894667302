package shim

import (
	"bytes"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// connectPackets is connect(2) of a UDP socket: datagrams of the peer alone, and without headers.
func (k *sock) connectPackets(q *request, r *reply, p int) error {
	if !q.addr.IsValid() {
		return k.disconnect(r, p)
	}
	to, err := k.target(q.addr)
	if err != nil {
		return err
	}
	if k.packets() == nil {
		if err := k.inRange(k.automatic(), k.bindPackets); err != nil {
			return err
		}
	}
	u := k.packets()
	if u == nil {
		return syscall.ENETDOWN // the program has closed it meanwhile
	}
	u.onHome(u.push) // to the peer of before
	if err := u.conn.Connect(to); err != nil {
		return bare(err)
	}
	u.flush(func() { err = u.convert(p, to) })
	r.local, r.remote = k.names()
	return err
}

// flush sends what the program has written, which has the form of before, and calls f before anything else is read.
func (u *packets) flush(f func()) {
	u.k.s.cfg.Stack.EnterLoop(u.home, func(in socket.LoopStack) {
		if u.watch != nil {
			u.toStack(in)
		}
		f()
	})
}

// convert makes to the peer, if it is valid, and takes it away otherwise: the datagrams that wait in the program's socket p get the form
// that the mark says (see sock.headed). mu keeps others out meanwhile, so that no two forms are mixed: a program would take bytes of a
// stranger for a header.
func (u *packets) convert(p int, to netip.AddrPort) error {
	k := u.k
	local := udpAddr(u.conn.LocalAddr())
	k.mu.Lock()
	defer k.mu.Unlock()
	from := k.remote
	connected := to.IsValid()
	plain := !k.headed(connected)
	was := u.plain.Swap(plain)
	u.peer = to
	u.peered.Store(connected)
	u.cork.reform(u.headSize())
	k.local, k.remote = k.shown(local), netip.AddrPort{}
	if connected {
		k.remote = k.shown(to)
	}
	if err := k.setForm(p, plain, connected); err != nil {
		return err
	}
	change := func(b []byte, _ int) []byte { return strip(b, to) }
	switch {
	case was && plain && (from == k.remote || !from.IsValid() || !connected), !was && !plain:
		return nil
	case was && connected && from.IsValid() && from != k.remote: // recvfrom(2) would show the new peer as their sender
		change = func([]byte, int) []byte { return nil }
	case was:
		d := datagram{remote: from, local: local, flags: datagramFlags(u.want.Load()).with(local.Addr().Is4()) & (wantPktInfo | wantMapped | wantOriginal)}
		change = func(b []byte, behind int) []byte {
			out := make([]byte, datagramSize, datagramSize+len(b))
			switch {
			case u.past.read(out, behind):
			case !from.IsValid():
				return nil // its sender is not known any more
			default:
				d.encode(out)
			}
			return append(out, b...)
		}
	}
	k.replace(p, change)
	u.past = pastHeaders{}
	return nil
}

// pastHeaders has the headers of the last datagrams that a program has got without them: those that it has not read get them back when a
// call asks for an address.
type pastHeaders struct {
	ring [][datagramSize]byte
	next int
}

func (h *pastHeaders) add(head [datagramSize]byte) {
	if len(h.ring) < maxReplaced {
		h.ring = append(h.ring, head)
		return
	}
	h.ring[h.next] = head
	h.next = (h.next + 1) % maxReplaced
}

// read reads the header of the datagram behind which so many others have come.
func (h *pastHeaders) read(b []byte, behind int) bool {
	if behind >= len(h.ring) {
		return false
	}
	copy(b, h.ring[(h.next+len(h.ring)-1-behind)%len(h.ring)][:])
	return true
}

// disconnect ends the association of a UDP socket with its peer. A port that the program has not chosen goes with it: the socket may be
// bound again, as on Linux.
func (k *sock) disconnect(r *reply, p int) error {
	u := k.packets()
	if u == nil {
		return nil
	}
	if err := u.conn.Connect(netip.AddrPort{}); err != nil {
		return bare(err)
	}
	err := error(nil)
	u.onHome(func(in socket.LoopStack) {
		u.push(in)
		err = u.convert(p, netip.AddrPort{})
	})
	if err == nil && k.chosen.Port() == 0 {
		err = u.leave()
	}
	r.local, r.remote = k.names()
	return err
}

// maxReplaced bounds the datagrams that replace looks at: more fit into no socket's buffer.
const maxReplaced = 1024

// replace puts what change makes of each datagram that waits in the program's socket in its place; nil drops it. behind is how many others
// have come since. Notices of errors come behind them. mu is held.
func (k *sock) replace(p int, change func(b []byte, behind int) []byte) {
	var waiting [][]byte
	noticed := false
	b := make([]byte, packetSize)
	for range maxReplaced {
		n, errno := receive(p, &[2][]byte{b}, unix.MSG_DONTWAIT)
		if errno == errDescriptors {
			noticed = true
			continue
		}
		if errno != 0 {
			break
		}
		waiting = append(waiting, bytes.Clone(b[:n]))
	}
	for i, b := range waiting {
		if c := change(b, len(waiting)-1-i); c != nil && k.fd >= 0 {
			_, _ = send(k.fd, &[2][]byte{c, nil}) // full: lost, as a datagram may be
		}
	}
	if k.notices = 0; noticed && k.udp != nil {
		k.udp.notify()
	}
}

// strip takes the header off a datagram. nil is that peer has not sent it.
func strip(b []byte, peer netip.AddrPort) []byte {
	d, err := decodeDatagram(b)
	if err != nil || netip.AddrPortFrom(d.remote.Addr().Unmap(), d.remote.Port()) != peer {
		return nil
	}
	return b[datagramSize:]
}
