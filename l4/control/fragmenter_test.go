package control

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// dontFragment sets Don't Fragment in an IPv4 packet; IPv6 packets are treated as if they had it.
func dontFragment(p []byte) []byte {
	if p[14]>>4 == 4 {
		wire.IPv4(p[14:]).SetDontFragment(true)
		wire.IPv4(p[14:]).FillChecksum()
	}
	return p
}

// narrow gives a device of the world another MTU.
func (w *world) narrow(dev, mtu int) {
	d := w.g.snap.Load().Devices[dev]
	d.MTU = mtu
	w.g.SetDevice(dev, d)
}

// cutConfigs are the ways on which a packet keeps its own IP header.
func cutConfigs() map[string]string {
	return map[string]string{
		"nat": fill(""), "source client": fill("source: client"), "l2": fmt.Sprintf(tunnelConfig, "l2", backend4),
	}
}

// leaves passes packets through, and returns all that leaves by a device: the fragments that the loop originates first.
func (w *world) leaves(o *output, from uint8, to uint8, mtu int, in ...[]byte) (list [][]byte) {
	w.t.Helper()
	o.dev = to
	for _, p := range in {
		o.originated = nil
		last := w.expect(from, p, to)
		list = append(append(list, o.originated...), last)
	}
	for _, p := range list {
		if len(p) > 14+mtu {
			w.t.Errorf("a packet of %d bytes, the MTU is %d", len(p)-14, mtu)
		}
		if ip := wire.IPv4(p[14:]); !ip.Valid() || ip.DontFragment() || int(ip.TotalLen()) != len(p)-14 || ip.ID() == 0 {
			w.t.Errorf("header %x", p[14:34])
		}
	}
	return list
}

// sameDatagram compares a datagram that has been put together with the one that left whole.
func sameDatagram(t *testing.T, got, want []byte) {
	t.Helper()
	if g, w := fmt.Sprint(flowOf(got)), fmt.Sprint(flowOf(want)); g != w || !bytes.Equal(got[34:], want[34:]) {
		t.Errorf("%d bytes, want %d:\ngot  %.200s\nwant %.200s", len(got), len(want), g, w)
	}
}

// RFC 1812 4.2.2.7: a packet without Don't Fragment that is larger than the MTU of its way out leaves in fragments, to
// the backend and to the client.
func TestPacketsWithoutDontFragmentLeaveInFragments(t *testing.T) {
	for name, config := range cutConfigs() {
		for _, mtu := range []int{68, 576, 1000, 1406} {
			t.Run(fmt.Sprint(name, " ", mtu), func(t *testing.T) {
				w := newWorld(t, config)
				o := w.withOutput()
				in := large(host, dns, "", 1407)
				whole := w.expect(0, in, 1)
				w.narrow(1, mtu)
				list := w.leaves(o, 0, 1, mtu, in)
				sameDatagram(t, join(t, list), whole)
				if again := w.leaves(o, 0, 1, mtu, in); name != "l2" && wire.IPv4(again[0][14:]).ID() == wire.IPv4(list[0][14:]).ID() {
					t.Error("two datagrams have one identification")
				}
				if id := wire.IPv4(list[0][14:]).ID(); name == "l2" && id != 7 {
					t.Errorf("identification %d is not the client's", id)
				}
				w.expect(0, large(host, dns, "", mtu), 1)
				if b := w.g.Status().Services[1].Backends[0]; name != "l2" && b.ToBytes < uint64(3*1407) {
					t.Errorf("%d bytes are counted", b.ToBytes)
				}
				if name == "l2" {
					return // replies do not pass the gateway
				}
				s := answer(whole, "")
				s.payload = flowOf(in).payload
				back := w.expect(1, s.bytes(), 0)
				w.narrow(0, mtu)
				sameDatagram(t, join(t, w.leaves(o, 1, 0, mtu, s.bytes())), back)
			})
		}
	}
}

// Fragments are cut again where the next link is narrower, with their offsets in the datagram. In l2 the gateway does not
// translate, and the identification stays the client's.
func TestFragmentsAreCutAgain(t *testing.T) {
	for name, config := range cutConfigs() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, config)
			o := w.withOutput()
			in := large(host, dns, "", 4001)
			pieces := split(in, 1400, 77)
			whole := join(t, w.leaves(o, 0, 1, 1500, pieces...))
			w.narrow(1, 600)
			list := w.leaves(o, 0, 1, 600, split(in, 1400, 78)...)
			sameDatagram(t, join(t, list), whole)
			for i, p := range list {
				if last := i == len(list)-1; wire.IPv4(p[14:]).MoreFragments() == last {
					t.Errorf("fragment %d of %d: more is %v", i, len(list), !last)
				}
			}
		})
	}
}

// Don't Fragment is an answer, as before, and so is each IPv6 packet; the fragments of one packet leave all or none.
func TestWhatMayNotBeCutIsAnswered(t *testing.T) {
	for name, config := range cutConfigs() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, config)
			o := w.withOutput()
			w.narrow(1, 1300)
			if got := toldBy(t, w.expect(0, dontFragment(large(host, dns, "", 1301)), 0)); got.mtu != 1300 {
				t.Errorf("told %v", got)
			}
			if got := toldBy(t, w.expect(0, large("[2001:db8::9]:40000", "[2001:db8:1::1]:53", "", 1301), 0)); name != "l2" && got.mtu != 1300 {
				t.Errorf("told %v", got)
			}
			o.room = 0
			w.refused(0, large(host, dns, "", 1301), packet.DropNoFrame)
			if len(o.originated) != 0 {
				t.Errorf("%d fragments", len(o.originated))
			}
		})
	}
}

// RFC 791 3.1: options without the copied flag are in the first fragment only.
func TestFragmentsRepeatCopiedOptionsOnly(t *testing.T) {
	w := newWorld(t, fill(""))
	o := w.withOutput()
	in := large(host, dns, "", 1400)
	options := []byte{0x44, 8, 5, 0, 0, 0, 0, 0, 0x94, 4, 0, 0, 1, 1, 1, 0} // timestamp, router alert (copied)
	p := append(append(bytes.Clone(in[:34]), options...), in[34:]...)
	ip := wire.IPv4(p[14:])
	p[14] = 0x40 | uint8(5+len(options)/4)
	ip.SetTotalLen(uint16(len(p) - 14))
	ip.FillChecksum()
	w.narrow(1, 700)
	list := w.leaves(o, 0, 1, 700, p)
	var data []byte
	for i, f := range list {
		want := options
		if i > 0 {
			want = []byte{1, 1, 1, 1, 1, 1, 1, 1, 0x94, 4, 0, 0, 1, 1, 1, 0}
		}
		if got := wire.IPv4(f[14:]); !got.ChecksumOK() || !bytes.Equal(got.Options(), want) || got.FragmentOffset() != len(data) {
			t.Errorf("fragment %d: options %x, offset %d", i, got.Options(), got.FragmentOffset())
		}
		data = append(data, wire.IPv4(f[14:]).Payload()...)
	}
	if len(list) != 3 || !bytes.Equal(data[8:], in[42:]) {
		t.Errorf("%d fragments of %d bytes", len(list), len(data))
	}
}

// A packet of several frames leaves in fragments as any other, and its frames are released.
func TestPacketsOfSeveralFramesAreCut(t *testing.T) {
	for name, config := range cutConfigs() {
		for _, cuts := range [][]int{{1900, 3900}, {101, 1500, 3000}, {1901, 3902, 4005}} {
			w := newWorld(t, config)
			o := w.withOutput()
			o.dev = 1
			in := large(host, dns, "", 4001)
			b := w.chain(in, cuts...)
			w.run(b)
			if d := b.D[1]; d.Verdict != packet.Forward || d.Port != 1 || d.Flags.Has(packet.FlagMore) {
				t.Fatalf("%s: %+v", name, d)
			}
			for i := 2; i < b.Len()-1; i++ {
				if b.D[i].Verdict != packet.Release {
					t.Fatalf("%s: descriptor %d: %v", name, i, b.D[i].Verdict)
				}
			}
			got := join(t, append(o.originated, bytes.Clone(b.Bytes(1))))
			if flowOf(got).payload != flowOf(in).payload {
				t.Errorf("%s: cut at %v: another datagram, of %d bytes", name, cuts, len(got)-14)
			}
		}
	}
}

// spare is an output that gives the same frames each time.
type spare struct {
	output
	frames [4]uint32
}

func (s *spare) Reserve(_ uint8, n int) []uint32    { return s.frames[:n] }
func (s *spare) Originate(_ uint8, _ []packet.Desc) {}

func TestFragmentingAllocatesNothing(t *testing.T) {
	for _, config := range cutConfigs() {
		w := newWorld(t, config)
		s := &spare{output: output{w: w}}
		for i := range s.frames {
			s.frames[i] = uint32((128 + i) << frameBits)
		}
		w.h.SetOutput(s)
		w.narrow(1, 600)
		w.allocatesNothing("fragments", large(host, dns, "", 1400))
	}
}

// An ICMP error without Don't Fragment that is larger than the link to its receiver is cut as well.
func TestErrorsLeaveInFragments(t *testing.T) {
	w := newWorld(t, fill("source: client"))
	o := w.withOutput()
	about := w.expect(0, large(host, dns, "", 1400), 1)
	m := message{src: "198.18.7.7", dst: "198.18.0.9", kind: 3, code: 1, about: about, quote: 1200, from: macBackend, to: macGw1}
	w.narrow(0, 600)
	list := w.leaves(o, 1, 0, 600, m.bytes())
	if len(list) < 2 {
		t.Errorf("%d packets", len(list))
	}
}
