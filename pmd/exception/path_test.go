package exception_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/exception"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// site is a machine whose only device is one end of a wire in memory, and a peer at the other end.
type site struct {
	ns    *testnet.Namespace
	arena *ring.Arena
	pools []*ring.Pool // of the device and of the peer
	dev   *link
	peer  pmd.Driver
	path  *exception.Path
	b     *packet.Batch
	now   clock.Time
	rules []pmd.Rule // that the device was given
}

// link is a device that can go down.
type link struct {
	pmd.Driver
	err     error
	full    bool // it takes no packet
	partial pmd.Caps
	marks   bool // received packets as claimed, by a rule of its own
}

func (l *link) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	had := len(b.D)
	n, err := l.Driver.Rx(now, b)
	for i := had; l.marks && i < len(b.D); i++ {
		b.D[i].Rule = packet.RuleClaimed
	}
	return n, err
}

func (l *link) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	if l.full {
		return 0, nil
	}
	return l.Driver.Tx(now, b)
}

func (l *link) Info() pmd.Info {
	i := l.Driver.Info()
	i.Caps |= l.partial
	return i
}

func (l *link) Holds(visit func(uint32)) { l.Driver.(ring.Holder).Holds(visit) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newSite makes an interface old0 with the addresses, which the path moves to mr0.
func newSite(t *testing.T, prefix string, partial pmd.Caps, addrs ...string) *site {
	t.Helper()
	n := testnet.For(t, prefix)
	s := &site{ns: n.Namespace("box"), now: 1}
	far := n.Namespace("far")
	must(t, n.Link(s.ns, "old0", far, "eth0"))
	must(t, far.Up("eth0"))
	must(t, s.ns.Up("old0", addrs...))
	var err error
	s.arena, err = ring.NewArena(ring.ArenaConfig{Frames: 1024, FrameSize: 2048, Huge: ring.HugeOff})
	must(t, err)
	for range 2 {
		p, err := s.arena.Cut(512)
		must(t, err)
		s.pools = append(s.pools, p)
	}
	a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: s.pools[0], B: s.pools[1]})
	must(t, err)
	s.dev, s.peer = &link{Driver: a, partial: partial}, b
	t.Cleanup(func() {
		must(t, s.peer.Close())
		for i, p := range s.pools {
			if p.Free() != p.Size() {
				t.Errorf("pool %d has %d of %d frames at the end", i, p.Free(), p.Size())
			}
		}
		must(t, s.arena.Close())
	})
	s.b = packet.NewBatch(s.arena.View(), 64)
	return s
}

// open opens the path.
func (s *site) open(t *testing.T) {
	t.Helper()
	must(t, s.ns.Do(func() (err error) {
		networks, err := exception.SaveNetworks("old0")
		if err != nil {
			return err
		}
		s.path, err = exception.Open(exception.Config{Device: []pmd.Driver{s.dev}, Pools: s.pools[:1], Interface: "mr0", Networks: networks, Steer: s.steer})
		return err
	}))
	t.Cleanup(func() {
		s.pools[0].PutBatch(s.b)
		must(t, s.path.Close())
	})
}

func (s *site) steer(rules ...pmd.Rule) error {
	s.rules = rules
	return nil
}

// deliver sends packets from the peer, and polls the path once.
func (s *site) deliver(t *testing.T, packets ...[]byte) {
	t.Helper()
	out := packet.NewBatch(s.arena.View(), len(packets))
	for _, p := range packets {
		off, _ := s.pools[1].Get()
		d := packet.Desc{Off: off + 128, Len: uint16(len(p))}
		copy(s.arena.Bytes(&d), p)
		out.Append(d)
	}
	if n, err := s.peer.Tx(s.now, out); n != len(packets) || err != nil {
		t.Fatal(n, err)
	}
	s.poll(t)
}

func (s *site) poll(t *testing.T) {
	t.Helper()
	s.now = s.now.Add(time.Millisecond)
	if _, err := s.path.Queues[0].Rx(s.now, s.b); err != nil {
		t.Fatal(err)
	}
}

// await polls until the peer receives a packet that match accepts, and returns a copy.
func (s *site) await(t *testing.T, what string, match func([]byte) bool) []byte {
	t.Helper()
	in := packet.NewBatch(s.arena.View(), 64)
	defer func() { s.pools[1].PutBatch(in) }()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.poll(t)
		if _, err := s.peer.Rx(s.now, in); err != nil {
			t.Fatal(err)
		}
		for i := range in.D {
			if match(in.Bytes(i)) {
				return bytes.Clone(in.Bytes(i))
			}
		}
		s.pools[1].PutBatch(in)
	}
	t.Fatalf("%s: nothing came", what)
	return nil
}

var (
	peerMAC = [6]byte{2, 0, 0, 0, 0, 9}
	peerIP  = netip.MustParseAddr("198.18.0.9")
	boxIP   = netip.MustParseAddr("198.18.0.2")
	claimed = netip.MustParseAddr("198.18.0.7")
)

func arpRequest(target netip.Addr) []byte {
	p := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, peerMAC[:]...)
	p = append(p, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	p = append(append(p, peerMAC[:]...), peerIP.AsSlice()...)
	return append(append(p, make([]byte, 6)...), target.AsSlice()...)
}

// udp returns a datagram of the peer. With partial its checksum is left to the device, as Linux does.
func udp(to [6]byte, dst netip.Addr, port uint16, partial bool, data string) []byte {
	p := append(append(append([]byte{}, to[:]...), peerMAC[:]...), 8, 0)
	ip := make([]byte, 28, 28+len(data))
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(data)))
	copy(ip[12:], peerIP.AsSlice())
	copy(ip[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(ip[20:], 4000)
	binary.BigEndian.PutUint16(ip[22:], port)
	binary.BigEndian.PutUint16(ip[24:], uint16(8+len(data)))
	ip = append(ip, data...)
	wire.IPv4(ip).FillChecksum()
	pseudo := wire.PseudoHeader4(peerIP.As4(), dst.As4(), 17, uint32(8+len(data)))
	if partial {
		binary.BigEndian.PutUint16(ip[26:], ^wire.Fold(pseudo))
	} else {
		wire.UDP(ip[20:]).FillChecksum(pseudo)
	}
	return append(p, ip...)
}

func isARPReply(p []byte) bool { return len(p) >= 42 && p[12] == 8 && p[13] == 6 && p[21] == 2 }

// TestKernelGetsWhatIsNotClaimed sends ARP requests and datagrams for an address of the kernel and for a claimed one, to
// the same machine. Linux answers for its own; the loop gets the others.
func TestKernelGetsWhatIsNotClaimed(t *testing.T) {
	for _, c := range []struct {
		name    string
		partial pmd.Caps
	}{{"checksums", 0}, {"partial checksums", pmd.CapPartialChecksums}} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, "mr-exc-split", c.partial, "198.18.0.2/24")
			s.open(t)
			must(t, s.path.Steer(pmd.Rule{Addr: claimed, Kind: pmd.Neighbor}, pmd.Rule{Addr: boxIP, Proto: 17, PortLo: 53}))
			mac := s.dev.Info().MAC

			s.deliver(t, arpRequest(claimed), arpRequest(boxIP))
			if s.b.Len() != 1 || s.b.Bytes(0)[41] != 7 {
				t.Fatalf("the loop has %d packets", s.b.Len())
			}
			s.pools[0].PutBatch(s.b)
			reply := s.await(t, "ARP", isARPReply)
			if [6]byte(reply[22:28]) != mac || [6]byte(reply[6:12]) != mac || reply[31] != 2 {
				t.Errorf("%x answers, and the device is %x", reply, mac)
			}

			// The kernel answers a datagram to a port that nobody has by ICMP, and ignores one with a wrong checksum.
			s.deliver(t, udp(mac, boxIP, 53, false, "claimed"), udp(mac, boxIP, 54, c.partial != 0, "not claimed"), udp(mac, boxIP, 53, false, "too"))
			if s.b.Len() != 2 || !bytes.HasSuffix(s.b.Bytes(0), []byte("claimed")) || !bytes.HasSuffix(s.b.Bytes(1), []byte("too")) {
				t.Fatalf("the loop has %d packets", s.b.Len())
			}
			s.await(t, "port unreachable", func(p []byte) bool { return len(p) > 35 && p[23] == 1 && p[34] == 3 && p[35] == 3 })

			i := s.path.Queues[0].Info()
			if st := i.Stats; st.RxPackets != 3 || st.ToKernel != 2 || st.FromKernel < 2 || st.TxPackets != 0 || st.KernelLost != 0 ||
				st.RxBytes != 42+42+7+42+3 || st.TxBytes != 0 {
				t.Errorf("%+v", st)
			}
			if !strings.Contains(i.Negotiated, "unclaimed packets to mr0") {
				t.Error(i.Negotiated)
			}
			if err := ring.Audit(s.arena, s.pools[0], s.pools[1], s.path.Queues[0], s.peer.(ring.Holder), holder{s.b}); err != nil {
				t.Error(err)
			}
		})
	}
}

type holder struct{ *packet.Batch }

func (h holder) Holds(visit func(off uint32)) {
	for i := range h.D {
		visit(h.D[i].Off)
	}
}

// TestChainsStayWhole passes packets of several frames, and splits none.
func TestChainsStayWhole(t *testing.T) {
	s := newSite(t, "mr-exc-chain", 0, "198.18.0.2/24")
	s.open(t)
	must(t, s.path.Steer(pmd.Rule{Addr: boxIP, Proto: 17, PortLo: 53}))
	mac := s.dev.Info().MAC
	s.deliver(t, arpRequest(boxIP)) // the kernel knows the peer then
	out := packet.NewBatch(s.arena.View(), 9)
	for _, port := range []uint16{53, 54, 53} {
		p := udp(mac, boxIP, port, false, strings.Repeat("x", 400))
		for i, piece := range [][]byte{p[:100], p[100:300], p[300:]} {
			off, _ := s.pools[1].Get()
			d := packet.Desc{Off: off, Len: uint16(len(piece)), Flags: packet.FlagMore}
			if i == 2 {
				d.Flags = 0
			}
			copy(s.arena.Bytes(&d), piece)
			out.Append(d)
		}
	}
	if n, err := s.peer.Tx(s.now, out); n != 9 || err != nil {
		t.Fatal(n, err)
	}
	s.poll(t)
	if s.b.Len() != 6 || packet.Packets(s.b.D) != 2 {
		t.Errorf("%d descriptors, %d packets", s.b.Len(), packet.Packets(s.b.D))
	}
	s.await(t, "port unreachable of the second", func(p []byte) bool { return len(p) > 35 && p[23] == 1 && p[34] == 3 })
}

// TestAddressesAndRoutesMove checks what the kernel has on the TAP interface, and on its own one afterwards.
func TestAddressesAndRoutesMove(t *testing.T) {
	s := newSite(t, "mr-exc-move", 0, "198.18.0.2/24", "2001:db8::2/64")
	for _, route := range []string{"198.18.7.0/24", "198.18.5.0/24 via 198.18.0.1", "default via 198.18.7.1", "2001:db8:5::/48 via 2001:db8::1"} {
		args := append([]string{"route", "add"}, strings.Fields(route)...)
		if strings.Contains(route, "2001") {
			args = append([]string{"-6"}, args...)
		}
		_, err := s.ns.Run("ip", append(args, "dev", "old0")...)
		must(t, err)
	}
	on := func(name string) (text string) {
		for _, args := range [][]string{{"-o", "addr", "show", "dev", name, "scope", "global"}, {"route", "show", "dev", name}, {"-6", "route", "show", "dev", name}} {
			out, _ := s.ns.Run("ip", args...)
			text += out
		}
		return text
	}
	want := []string{"198.18.0.2/24", "2001:db8::2/64", "198.18.7.0/24", "198.18.5.0/24 via 198.18.0.1", "default via 198.18.7.1", "2001:db8:5::/48 via 2001:db8::1"}
	check := func(name string, has bool) {
		t.Helper()
		text := on(name)
		for _, w := range want {
			if strings.Contains(text, w) != has {
				t.Errorf("%q on %s is %v, want %v:\n%s", w, name, !has, has, text)
			}
		}
	}
	check("old0", true)
	s.open(t)
	check("old0", false)
	check("mr0", true)
	if _, err := s.ns.Run("ip", "addr", "add", "198.18.0.3/24", "dev", "mr0"); err != nil {
		t.Fatal(err)
	}
	want = append(want, "198.18.0.3/24") // an address that is new returns too
	_, err := s.ns.Run("ip", "link", "set", "old0", "down")
	must(t, err)
	must(t, s.path.Close())
	check("old0", true) // routes need an interface that is up
	if out, err := s.ns.Run("ip", "link", "show", "dev", "mr0"); err == nil {
		t.Errorf("mr0 remains: %s", out)
	}
}

// TestCarrierFollowsTheDevice takes the device down and up again.
func TestCarrierFollowsTheDevice(t *testing.T) {
	s := newSite(t, "mr-exc-carrier", 0, "198.18.0.2/24")
	s.open(t)
	carrier := func() (up bool) {
		must(t, s.ns.Do(func() error {
			h, err := netlink.NewHandle()
			if err != nil {
				return err
			}
			defer h.Close()
			l, err := h.LinkByName("mr0")
			if err == nil {
				up = l.Attrs().OperState != netlink.OperDown
			}
			return err
		}))
		return up
	}
	await := func(want bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); carrier() != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the carrier is %v", !want)
			}
		}
	}
	s.poll(t)
	await(true)
	s.dev.err = pmd.ErrDown
	if _, err := s.path.Queues[0].Rx(s.now, s.b); !errors.Is(err, pmd.ErrDown) {
		t.Error(err)
	}
	await(false)
	s.dev.err = nil
	s.poll(t)
	await(true)
}

// TestPathSurvivesTheLossOfItsInterface deletes the TAP interface: claimed packets still come, and the others are counted.
func TestPathSurvivesTheLossOfItsInterface(t *testing.T) {
	s := newSite(t, "mr-exc-lost", 0, "198.18.0.2/24")
	s.open(t)
	must(t, s.path.Steer(pmd.Rule{Addr: boxIP, Proto: 17, PortLo: 53}))
	_, err := s.ns.Run("ip", "link", "del", "dev", "mr0")
	must(t, err)
	mac := s.dev.Info().MAC
	s.deliver(t, udp(mac, boxIP, 53, false, "claimed"), udp(mac, boxIP, 54, false, "lost"))
	if st := s.path.Queues[0].Info().Stats; s.b.Len() != 1 || st.KernelLost != 1 || st.ToKernel != 1 || st.RxPackets != 1 {
		t.Errorf("%d packets, %+v", s.b.Len(), st)
	}
}

// TestDeviceThatGoesLosesTheKernelsPackets fails the device while the kernel sends.
func TestDeviceThatGoesLosesTheKernelsPackets(t *testing.T) {
	s := newSite(t, "mr-exc-gone", 0, "198.18.0.2/24")
	s.open(t)
	s.dev.err = pmd.ErrGone
	for end := time.Now().Add(10 * time.Second); s.path.Queues[0].Info().Stats.KernelLost == 0; { // IPv6 solicits by itself
		s.now = s.now.Add(time.Millisecond)
		if _, err := s.path.Queues[0].Rx(s.now, s.b); !errors.Is(err, pmd.ErrGone) {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatal("no packet of the kernel is counted as lost")
		}
	}
}

// TestFullDeviceKeepsTheKernelsPackets has a device that takes nothing for a while: what the kernel sends waits for it, and returns to
// its pool where the path is closed meanwhile.
func TestFullDeviceKeepsTheKernelsPackets(t *testing.T) {
	s := newSite(t, "mr-exc-full", 0, "198.18.0.2/24")
	s.open(t)
	waiting := func() (n int) {
		s.path.Queues[0].Holds(func(uint32) { n++ })
		return n
	}
	idle := waiting()
	wait := func() {
		t.Helper()
		s.dev.full = true
		s.deliver(t, arpRequest(boxIP))
		for end := time.Now().Add(10 * time.Second); waiting() == idle; s.poll(t) {
			if time.Now().After(end) {
				t.Fatal("no packet of the kernel waits")
			}
		}
	}
	wait()
	s.dev.full = false
	s.await(t, "ARP", isARPReply)
	if st := s.path.Queues[0].Info().Stats; st.KernelLost != 0 {
		t.Errorf("%+v", st)
	}
	wait() // and the test ends
}

func TestOpenRefuses(t *testing.T) {
	s := newSite(t, "mr-exc-wrong", 0)
	closed := false
	must(t, s.ns.Do(func() error {
		_, err := exception.Open(exception.Config{
			Device: []pmd.Driver{s.dev}, Pools: s.pools[:1], Interface: "old0", CloseDevice: func() error { closed = true; return nil },
		})
		var op *pmd.OpError
		if !errors.Is(err, pmd.ErrBusy) || !errors.As(err, &op) || !strings.Contains(op.Remedy, "name must be free") {
			t.Errorf("%v", err)
		}
		if _, err := exception.SaveNetworks("nowhere0"); err == nil {
			t.Error("networks of an interface that is not there")
		}
		return nil
	}))
	if !closed {
		t.Error("the device stays open")
	}
	if _, err := exception.NewMatcher(pmd.Rule{Addr: boxIP, PortLo: 5}); err == nil {
		t.Error("a rule with ports and no protocol")
	}
}
