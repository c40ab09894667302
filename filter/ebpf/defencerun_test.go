package ebpf

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/wire"
)

// Results of an XDP program (linux/bpf.h).
const (
	xdpDrop = 1
	xdpPass = 2
	xdpTx   = 3
)

// run runs the program on a frame, as BPF_PROG_TEST_RUN does, and returns its result and the frame behind it.
func run(t *testing.T, p *ebpf.Program, frame []byte) (result uint32, out []byte) {
	t.Helper()
	out = make([]byte, 256)
	o := ebpf.RunOptions{Data: frame, DataOut: out}
	result, err := p.Run(&o)
	if err != nil {
		t.Fatal(err)
	}
	return result, o.DataOut
}

// runnable loads the program of a defence.
func (d *Defence) runnable(t *testing.T) *ebpf.Program {
	t.Helper()
	spec, err := loadDefence()
	if err != nil {
		t.Fatal(err)
	}
	coll, err := d.program(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(coll.Close)
	return coll.Programs[defenceProgDefence]
}

// 0.0.0.0 stands for a free place of the array, and is no source that it has a verdict on. A verdict on it counts all the same.
func TestFreePlacesHaveNoVerdict(t *testing.T) {
	w := newGuarded(t)
	p := w.d.runnable(t)
	w.ok(w.d.Put(Verdict{Prefix: netip.MustParsePrefix("198.18.7.1/32"), Rule: 1}))
	for src, want := range map[string]uint32{"198.18.7.1": xdpDrop, "0.0.0.0": xdpPass, "198.18.7.2": xdpPass} {
		if got, _ := run(t, p, packetFrom(src, 0)); got != want {
			t.Errorf("%s: %d, want %d", src, got, want)
		}
	}
	w.ok(w.d.Put(Verdict{Prefix: netip.MustParsePrefix("0.0.0.0/32"), Rule: 2}))
	if got, _ := run(t, p, packetFrom("0.0.0.0", 0)); got != xdpDrop {
		t.Errorf("0.0.0.0 with a verdict: %d", got)
	}
	w.ok(w.d.Remove(netip.MustParsePrefix("0.0.0.0/32")))
	if got, _ := run(t, p, packetFrom("0.0.0.0", 0)); got != xdpPass {
		t.Errorf("0.0.0.0 without: %d", got)
	}
}

// A verdict of the array ends without anything being done: a limit on time, a drop with the rule's next look at the clock,
// which each CPU has every 16 packets.
func TestVerdictsOfTheArrayExpire(t *testing.T) {
	w := newGuarded(t)
	p := w.d.runnable(t)
	const until = 300 * time.Millisecond
	w.ok(w.d.Put(
		Verdict{Prefix: netip.MustParsePrefix("198.18.7.1/32"), Rule: 1, For: until},
		Verdict{Prefix: netip.MustParsePrefix("198.18.7.2/32"), Rule: 2, Rate: 1, Burst: 1, For: until},
	))
	drops := func(src string, frames int) (n int, last uint32) {
		for range frames {
			if last, _ = run(t, p, packetFrom(src, 0)); last == xdpDrop {
				n++
			}
		}
		return n, last
	}
	if n, _ := drops("198.18.7.1", 21); n != 21 {
		t.Errorf("%d of 21 frames are dropped", n)
	}
	if n, last := drops("198.18.7.2", 20); n < 10 || last != xdpDrop {
		t.Errorf("%d of 20 frames beyond the rate are dropped", n)
	}
	if len(w.d.front.slots) != 2 {
		t.Fatal("the verdicts are not in the array")
	}
	time.Sleep(until + 50*time.Millisecond)
	untimed := 16 * runtime.NumCPU()
	if n, last := drops("198.18.7.1", untimed+20); n >= untimed || last != xdpPass {
		t.Errorf("%d of %d frames are dropped after the verdict's end", n, untimed+20)
	}
	if n, _ := drops("198.18.7.2", 20); n != 0 {
		t.Errorf("%d of 20 frames are dropped after the limit's end", n)
	}
}

// segment is a frame with a TCP segment of IPv4, from and to.
func segment(from, to netip.AddrPort, flags wire.TCPFlags, change func(ip wire.IPv4)) []byte {
	mac := wire.MAC{2, 0, 0, 0, 0, 1}
	b := wire.AppendEthernet(nil, mac, mac, wire.EtherTypeIPv4)
	b = wire.AppendIPv4(b, &wire.IPv4Header{PayloadLen: wire.TCPLen, TTL: 5, TOS: 8, ID: 9, Proto: wire.ProtoTCP, Src: from.Addr().As4(), Dst: to.Addr().As4()})
	b = wire.AppendTCP(b, &wire.TCPHeader{SrcPort: from.Port(), DstPort: to.Port(), Seq: 7, Flags: flags, Window: 1000})
	if change != nil {
		change(b[wire.EthernetLen:])
	}
	return append(b, make([]byte, 6)...)
}

// assisted is a world with a listener and a connection to it, whose defence gives the kernel one SYN a second. do runs in its
// namespace, on one CPU, since buckets are those of a CPU.
func assisted(t *testing.T, do func(p *ebpf.Program, d *Defence, client, server netip.AddrPort)) {
	w := newGuarded(t)
	w.ok(w.near.Sysctl("net.ipv4.tcp_syncookies", "2"))
	w.ok(w.near.Up("lo"))
	p := w.d.runnable(t)
	w.do(func() error {
		var before, one unix.CPUSet
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w.ok(unix.SchedGetaffinity(0, &before))
		for cpu := range 1024 {
			if before.IsSet(cpu) {
				one.Set(cpu)
				break
			}
		}
		w.ok(unix.SchedSetaffinity(0, &one))
		defer func() { _ = unix.SchedSetaffinity(0, &before) }()
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		w.ok(err)
		defer l.Close()
		c, err := net.Dial("tcp4", l.Addr().String())
		w.ok(err)
		defer c.Close()
		do(p, w.d, c.LocalAddr().(*net.TCPAddr).AddrPort(), l.Addr().(*net.TCPAddr).AddrPort())
		return nil
	})
}

// Segments that are no SYN do not count as SYNs, and are not answered: the SYN behind them is the first of its second.
func TestSegmentsThatAreNoSYNAreNotCounted(t *testing.T) {
	for _, flags := range []wire.TCPFlags{wire.FlagACK, wire.FlagSYN | wire.FlagACK, wire.FlagSYN | wire.FlagRST, wire.FlagSYN | wire.FlagFIN, 0} {
		assisted(t, func(p *ebpf.Program, d *Defence, _, server netip.AddrPort) {
			from := netip.MustParseAddrPort("198.18.7.1:1000")
			if err := d.AssistSYN(1); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if got, _ := run(t, p, segment(from, server, flags, nil)); got != xdpPass {
					t.Errorf("flags %v: %d", flags, got)
				}
			}
			for n, want := range []uint32{xdpPass, xdpTx} { // the kernel gets the first
				got, out := run(t, p, segment(from, server, wire.FlagSYN, nil))
				if got != want {
					t.Errorf("SYN %d behind flags %v: %d, want %d", n, flags, got, want)
				}
				if got != xdpTx {
					continue
				}
				ip := wire.IPv4(out[wire.EthernetLen:])
				if tcp := wire.TCP(ip.Payload()); tcp.Flags() != wire.FlagSYN|wire.FlagACK || tcp.Ack() != 8 || tcp.DstPort() != 1000 || !ip.ChecksumOK() ||
					ip.TTL() != 64 || ip.ID() != 0 || ip[1] != 0 || ip.DstAddr() != from.Addr() {
					t.Errorf("the answer: %x", out)
				}
			}
		})
	}
}

// Of a flood only SYNs in plain packets to a listener are answered; all else is the kernel's.
func TestOnlyPlainSYNsToListenersAreAnswered(t *testing.T) {
	assisted(t, func(p *ebpf.Program, d *Defence, client, server netip.AddrPort) {
		from := netip.MustParseAddrPort("198.18.7.1:1000")
		if err := d.AssistSYN(1); err != nil {
			t.Fatal(err)
		}
		run(t, p, segment(from, server, wire.FlagSYN, nil)) // uses up the second
		for what, c := range map[string]struct {
			from, to netip.AddrPort
			change   func(wire.IPv4)
			want     uint32
		}{
			"a SYN":                            {from, server, nil, xdpTx},
			"of a connection that is there":    {client, server, nil, xdpPass},
			"to a port without a listener":     {from, netip.AddrPortFrom(server.Addr(), 1), nil, xdpPass},
			"another protocol":                 {from, server, func(ip wire.IPv4) { ip[9] = wire.ProtoUDP }, xdpPass},
			"the first of several fragments":   {from, server, func(ip wire.IPv4) { ip[6] = 0x20 }, xdpPass},
			"a later fragment":                 {from, server, func(ip wire.IPv4) { ip[7] = 1 }, xdpPass},
			"a header with options":            {from, server, func(ip wire.IPv4) { ip[0] = 0x46 }, xdpPass},
			"a packet that may not be cut":     {from, server, func(ip wire.IPv4) { ip[6] = 0x40 }, xdpTx},
			"a data offset beyond the segment": {from, server, func(ip wire.IPv4) { ip[20+12] = 0xf0 }, xdpPass},
			"a data offset below a header":     {from, server, func(ip wire.IPv4) { ip[20+12] = 0x40 }, xdpPass},
		} {
			if got, _ := run(t, p, segment(c.from, c.to, wire.FlagSYN, c.change)); got != c.want {
				t.Errorf("%s: %d, want %d", what, got, c.want)
			}
		}
	})
}

// An extension header in an IPv6 packet is not taken for TCP.
func TestOnlyPlainSYNsOfIPv6AreAnswered(t *testing.T) {
	assisted(t, func(p *ebpf.Program, d *Defence, _, _ netip.AddrPort) {
		l, err := net.Listen("tcp6", "[::1]:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := d.AssistSYN(1); err != nil {
			t.Fatal(err)
		}
		mac := wire.MAC{2, 0, 0, 0, 0, 1}
		syn := func(next uint8) []byte {
			b := wire.AppendEthernet(nil, mac, mac, wire.EtherTypeIPv6)
			b = wire.AppendIPv6(b, &wire.IPv6Header{PayloadLen: wire.TCPLen, HopLimit: 5, NextHeader: next, Src: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}, Dst: [16]byte{15: 1}})
			return wire.AppendTCP(b, &wire.TCPHeader{SrcPort: 1000, DstPort: uint16(l.Addr().(*net.TCPAddr).Port), Seq: 7, Flags: wire.FlagSYN, Window: 1000})
		}
		run(t, p, syn(wire.ProtoTCP)) // uses up the second
		if got, _ := run(t, p, syn(0)); got != xdpPass {
			t.Errorf("hop-by-hop options: %d", got)
		}
		if got, out := run(t, p, syn(wire.ProtoTCP)); got != xdpTx || wire.IPv6(out[wire.EthernetLen:]).HopLimit() != 64 {
			t.Errorf("a SYN: %d, %x", got, out)
		}
	})
}
