package rolelink

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/wire"
)

// Link is a network on a device, with addresses that the gateways answer for there.
type Link struct {
	Device string
	VLAN   uint16 // 802.1Q tag of its frames; 0 is none
	MAC    wire.MAC
	Addrs  []netip.Addr // all; some are asked for, since a gateway answers for all of its own or none
}

// asker asks the hosts of links whether one answers for an address. Its sockets see what the kernel sees of a device: the
// driver leaves ARP and neighbour discovery there that no service claims, and replies to questions without a sender's address.
type asker struct {
	r     *Runner
	socks map[string]*sock
}

// sock is a packet socket of a device.
type sock struct {
	fd    int
	index int
	links []Link
}

func newAsker(r *Runner) *asker { return &asker{r: r, socks: map[string]*sock{}} }

// idleAfter is the time after the last question after which the sockets are closed: each costs the kernel a filter for each of
// its packets.
const idleAfter = 3 * time.Second

// pollEvery is the interval at which the sockets are read for idleAfter.
const pollEvery = 2 * time.Millisecond

// run asks when the machine wants it, and reads the answers, until ctx ends.
func (a *asker) run(ctx context.Context) {
	defer a.close()
	a.r.describe()
	every := time.NewTicker(a.r.cfg.Role.Lease) // the kernel's networks change without a reload
	defer every.Stop()
	var until time.Time
	for {
		var tick <-chan time.Time
		if time.Now().Before(until) {
			tick = time.After(pollEvery)
		} else {
			a.close()
		}
		select {
		case <-ctx.Done():
			return
		case <-a.r.probe:
			until = time.Now().Add(idleAfter)
			a.ask()
		case <-a.r.changed:
			a.r.describe()
		case <-every.C:
			a.r.describe()
		case <-tick:
		}
		a.read()
	}
}

func (a *asker) close() {
	for dev, s := range a.socks {
		unix.Close(s.fd)
		delete(a.socks, dev)
	}
}

// describe has the machine tell the peer of the addresses of this gateway.
func (r *Runner) describe() {
	links, err := r.cfg.Links()
	if err != nil {
		return // as in ask
	}
	addrs, known, n := describe(r.cfg.Addrs(), links), r.peerSample(), 0
	for i := range links {
		n += len(questions(links[i].Addrs, known))
	}
	r.asks.Store(int64(n))
	r.do(func(m *role.Machine, now clock.Time) { m.SetAddrs(now, addrs) })
}

// peerSample returns addresses that the peer answers for while it is active, by its last message: also of a peer that is not heard.
func (r *Runner) peerSample() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Picture(r.cfg.Now()).Peer.Addrs.Sample
}

// ask sends a question for each address that is asked for.
func (a *asker) ask() {
	links, err := a.r.cfg.Links()
	if err != nil {
		return // the kernel's networks cannot be read now; the machine asks again
	}
	for _, s := range a.socks {
		s.links = s.links[:0]
	}
	known := a.r.peerSample()
	for _, l := range links {
		l.Addrs = questions(l.Addrs, known)
		s := a.socks[l.Device]
		if s == nil {
			if s, err = openSock(l.Device); err != nil {
				continue // a device that is gone has no hosts
			}
			a.socks[l.Device] = s
		}
		s.links = append(s.links, l)
		for _, addr := range l.Addrs {
			_ = unix.Sendto(s.fd, question(addr, l.MAC, l.VLAN), 0, &unix.SockaddrLinklayer{Ifindex: s.index})
		}
	}
	a.r.probes.Add(1)
}

// read reads all answers that are there.
func (a *asker) read() {
	buf := make([]byte, 2048)
	for _, s := range a.socks {
		for range 256 {
			n, from, err := unix.Recvfrom(s.fd, buf, unix.MSG_DONTWAIT)
			if err != nil {
				break // EAGAIN, or the device is gone
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			switch mac, kind := s.classify(buf[:n]); kind {
			case answer:
				a.r.answered(mac)
			case rival:
				a.r.do(func(m *role.Machine, now clock.Time) {
					a.r.rival = mac.String()
					m.Rivalled(now)
				})
			}
		}
	}
}

// answered handles that a host answers for an address.
func (r *Runner) answered(mac wire.MAC) {
	r.do(func(m *role.Machine, now clock.Time) {
		r.by = mac.String()
		m.Answered(now)
	})
}

// kind classifies frames about an address that was asked for.
type kind uint8

const (
	nothing kind = iota
	answer       // its sender has it
	rival        // its sender asks for it as well, without an address of its own
)

// classify returns what a frame says, and of whom.
func (s *sock) classify(b []byte) (wire.MAC, kind) {
	if len(b) < wire.EthernetLen {
		return wire.MAC{}, nothing
	}
	mac, said, about := wire.Ethernet(b).Src(), nothing, netip.Addr{}
	switch body := b[wire.EthernetLen:]; binary.BigEndian.Uint16(b[12:]) {
	case wire.EtherTypeARP:
		said, about, mac = classifyARP(wire.ARP(body), mac)
	case wire.EtherTypeIPv6:
		said, about = classifyND(wire.IPv6(body))
	}
	if said == nothing || s.own(mac) || !s.asked(about) {
		return mac, nothing
	}
	return mac, said
}

func classifyARP(p wire.ARP, src wire.MAC) (kind, netip.Addr, wire.MAC) {
	switch {
	case !p.Valid():
		return nothing, netip.Addr{}, src
	case p.Sender() != [4]byte{}: // an answer, or an announcement
		return answer, p.SenderAddr(), p.SenderMAC()
	case p.Op() == wire.ARPRequest:
		return rival, p.TargetAddr(), p.SenderMAC()
	}
	return nothing, netip.Addr{}, src
}

func classifyND(p wire.IPv6) (kind, netip.Addr) {
	if len(p) < wire.IPv6Len+8 || p.NextHeader() != wire.ProtoICMPv6 || p.HopLimit() != wire.NDHopLimit {
		return nothing, netip.Addr{}
	}
	body := p[wire.IPv6Len:]
	switch {
	case body[0] == wire.ICMPv6NeighborAdvert && wire.NeighborAdvert(body).Valid():
		return answer, wire.NeighborAdvert(body).TargetAddr()
	case body[0] == wire.ICMPv6NeighborSolicit && p.Src() == [16]byte{} && wire.NeighborSolicit(body).Valid():
		return rival, wire.NeighborSolicit(body).TargetAddr()
	}
	return nothing, netip.Addr{}
}

func (s *sock) own(mac wire.MAC) bool {
	for i := range s.links {
		if s.links[i].MAC == mac {
			return true
		}
	}
	return false
}

func (s *sock) asked(a netip.Addr) bool {
	for i := range s.links {
		for _, have := range s.links[i].Addrs {
			if have == a {
				return true
			}
		}
	}
	return false
}

// question returns the frame that asks who has an address, without one of its own: an ARP probe (RFC 5227 2.1.1), or a
// solicitation as for duplicate address detection (RFC 4862 5.4.2). Neither changes a neighbour's table.
func question(a netip.Addr, mac wire.MAC, vlan uint16) []byte {
	to, ether := wire.Broadcast, wire.EtherTypeARP
	if a.Is6() {
		to, ether = wire.MulticastMAC6(wire.SolicitedNode(a.As16())), wire.EtherTypeIPv6
	}
	b := wire.AppendEthernet(nil, to, mac, ether)
	if vlan != 0 {
		b = wire.AppendEthernet(nil, to, mac, wire.EtherTypeVLAN)
		b = binary.BigEndian.AppendUint16(b, vlan)
		b = binary.BigEndian.AppendUint16(b, uint16(ether))
	}
	if a.Is4() {
		return wire.AppendARP(b, wire.ARPRequest, wire.ARPHost{MAC: mac}, wire.ARPHost{Addr: a.As4()})
	}
	n := len(b)
	b = wire.AppendIPv6(b, &wire.IPv6Header{
		Dst: wire.SolicitedNode(a.As16()), NextHeader: wire.ProtoICMPv6, HopLimit: wire.NDHopLimit, PayloadLen: wire.NeighborSolicitLen,
	})
	b = append(b, wire.ICMPv6NeighborSolicit, 0, 0, 0, 0, 0, 0, 0)
	target := a.As16()
	b = append(b, target[:]...)
	wire.ICMPv6(b[n+wire.IPv6Len:]).FillChecksum(wire.IPv6(b[n:]).Pseudo())
	return b
}

// openSock opens a packet socket of a device, for ARP and neighbour discovery.
func openSock(device string) (*sock, error) {
	index, err := indexOf(device)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // receives nothing yet
	if err != nil {
		return nil, err
	}
	prog := neighbourFilter()
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: index}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &sock{fd: fd, index: index}, nil
}

func networkOrder(v uint16) uint16 { return v<<8 | v>>8 }

// neighbourFilter takes ARP, and neighbour solicitations and advertisements without extension headers, which these have
// (RFC 4861 7.1). The kernel has removed VLAN tags before.
func neighbourFilter() []unix.SockFilter {
	const load, jump, ret = unix.BPF_LD | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	return []unix.SockFilter{
		{Code: load | unix.BPF_H, K: 12},
		{Code: jump, K: uint32(wire.EtherTypeARP), Jt: 6},
		{Code: jump, K: uint32(wire.EtherTypeIPv6), Jf: 6},
		{Code: load | unix.BPF_B, K: 20}, // next header
		{Code: jump, K: uint32(wire.ProtoICMPv6), Jf: 4},
		{Code: load | unix.BPF_B, K: 54}, // type
		{Code: jump, K: uint32(wire.ICMPv6NeighborSolicit), Jt: 1},
		{Code: jump, K: uint32(wire.ICMPv6NeighborAdvert), Jf: 1},
		{Code: ret, K: 2048},
		{Code: ret, K: 0},
	}
}

func indexOf(device string) (int, error) {
	in, err := net.InterfaceByName(device)
	if err != nil {
		return 0, err
	}
	return in.Index, nil
}
