package control

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// output is the transmit side of a loop that a world does not have. Frames are those of the arena from the 128th on.
type output struct {
	w          *world
	room       int // frames that Reserve can give
	given      int
	originated [][]byte
	resumed    []sent
	repeated   [][]byte
	full       bool // Repeat has no room
	end        []func()
	ticks      int
	kept       int // frames of held
	dev        uint8
}

func (o *output) Reserve(_ uint8, n int) (list []uint32) {
	if n > o.room {
		return nil
	}
	for range n {
		list = append(list, uint32((128+o.given%64)<<frameBits))
		o.given++
	}
	return list
}

func (o *output) Originate(dev uint8, list []packet.Desc) {
	for i := range list {
		if dev != o.dev || list[i].Flags.Has(packet.FlagMore) {
			o.w.t.Errorf("descriptor %+v to device %d", list[i], dev)
		}
		o.originated = append(o.originated, bytes.Clone(o.w.arena.Bytes(&list[i])))
	}
}

func (o *output) Resume(list []packet.Desc) {
	for i := range list {
		o.resumed = append(o.resumed, sent{list[i].Verdict, list[i].Port, bytes.Clone(o.w.arena.Bytes(&list[i]))})
	}
}

func (o *output) Repeat(list []packet.Desc) bool {
	if o.full {
		return false
	}
	for i := range list {
		o.repeated = append(o.repeated, bytes.Clone(o.w.arena.Bytes(&list[i])))
	}
	return true
}

func (o *output) Send(_ uint8, frame []byte) error {
	o.w.t.Errorf("a frame is sent: %x", frame)
	return nil
}

func (o *output) RequestTick() { o.ticks++ }

func (o *output) On(int, func(clock.Time)) bool { return false }
func (o *output) AtEnd(f func())                { o.end = append(o.end, f) }

// withOutput gives the world's handler an output.
func (w *world) withOutput() *output {
	o := &output{w: w, room: 64, dev: 1}
	w.h.SetOutput(o)
	return o
}

// reassemble puts the fragments of an outer packet together.
func reassemble(t *testing.T, list [][]byte, mtu int) []byte {
	t.Helper()
	var out, data []byte
	id := uint32(0)
	for i, p := range list {
		last := i == len(list)-1
		if len(p) > 14+mtu {
			t.Errorf("fragment %d has %d bytes, the MTU is %d", i, len(p)-14, mtu)
		}
		var at int
		var more bool
		var is uint32
		var piece []byte
		if p[14]>>4 == 4 {
			ip := wire.IPv4(p[14:])
			if !ip.Valid() || !ip.ChecksumOK() || ip.DontFragment() || int(ip.TotalLen()) != len(p)-14 {
				t.Fatalf("fragment %d: header %x", i, p[14:34])
			}
			at, more, is, piece = ip.FragmentOffset(), ip.MoreFragments(), uint32(ip.ID()), p[34:]
		} else {
			ip := wire.IPv6(p[14:])
			if !ip.Valid() || int(ip.PayloadLen()) != len(p)-54 || p[20] != wire.ProtoFragment {
				t.Fatalf("fragment %d: header %x", i, p[14:62])
			}
			off := binary.BigEndian.Uint16(p[56:])
			at, more, is, piece = int(off&^7), off&1 != 0, binary.BigEndian.Uint32(p[58:]), p[62:]
		}
		if at != len(data) || more == last || i > 0 && is != id || is == 0 {
			t.Fatalf("fragment %d of %d: at %d, more %v, identification %d; have %d bytes", i, len(list), at, more, is, len(data))
		}
		id, data = is, append(data, piece...)
	}
	first := list[0]
	if first[14]>>4 == 4 {
		out = append(bytes.Clone(first[:34]), data...)
		ip := wire.IPv4(out[14:])
		ip.SetTotalLen(uint16(len(out) - 14))
		ip.SetMoreFragments(false)
		ip.FillChecksum()
		return out
	}
	out = append(bytes.Clone(first[:54]), data...)
	out[20] = first[54]
	binary.BigEndian.PutUint16(out[18:], uint16(len(data)))
	return out
}

// tunnelCases are all tunnels with clients of both families.
func tunnelCases(t *testing.T, tooBig string, run func(t *testing.T, w *world, mode string, overhead int, src, dst string)) {
	for _, c := range tunnels {
		overhead := map[string]int{"ipip" + backend4: 20, "ipip" + backend6: 40, "gue" + backend4: 32, "gue" + backend6: 52}[c.mode+c.backend]
		for _, f := range directFlows {
			t.Run(c.mode+" to "+c.backend+" from "+f.src+" to "+f.dst, func(t *testing.T) {
				w := newWorld(t, strings.Replace(fmt.Sprintf(tunnelConfig, c.mode, c.backend), `:5::/64"]`, `:5::/64"], too_big: `+tooBig, 1))
				run(t, w, c.mode, overhead, f.src, f.dst)
			})
		}
	}
}

// flagsTo returns the flags of an opening packet to an address of tunnelConfig.
func flagsTo(dst string) string {
	if strings.HasSuffix(dst, ":80") {
		return "S"
	}
	return ""
}

// sourceOf returns the source address of a packet.
func sourceOf(p []byte) string {
	if p[14]>>4 == 4 {
		return wire.IPv4(p[14:]).SrcAddr().String()
	}
	return wire.IPv6(p[14:]).SrcAddr().String()
}

// pathError is packet too big about a packet that a tunnel carried.
func pathError(t *testing.T, sentBy []byte, mtu int) []byte {
	t.Helper()
	src, dst := "198.18.7.7", ""
	if sentBy[14]>>4 == 6 {
		src = "2001:db8:7::7"
	}
	dst = sourceOf(sentBy)
	m := message{src: src, dst: dst, kind: tooBigOf(src), code: codeOf(src), rest: uint32(mtu), about: sentBy, quote: 500, from: macBackend, to: macGw1}
	return m.bytes()
}

// With `too_big: fragment` a client is sent no error: what does not fit the path leaves in fragments, in order, which
// make the packet that the tunnel would have carried whole.
func TestOuterPacketsLeaveInFragments(t *testing.T) {
	tunnelCases(t, "fragment", func(t *testing.T, w *world, mode string, overhead int, src, dst string) {
		o := w.withOutput()
		for _, mtu := range []int{0, 1400, 1281, 600} {
			o.originated = nil
			about := w.expect(0, large(src, dst, flagsTo(dst), 1500), 1)
			small := w.expect(0, client(src, dst, flagsTo(dst)).bytes(), 1)
			if mtu != 0 { // the router drops the fragments, and reports each of them
				if about[14]>>4 == 6 {
					w.refused(1, pathError(t, about, mtu), packet.DropTruncated)
					about = o.originated[0]
				} else {
					about = small
				}
				w.refused(1, pathError(t, about, mtu), packet.DropTooBig)
			}
			if mtu == 0 {
				mtu = 1500
			}
			if small[14]>>4 == 6 {
				mtu = max(mtu, 1280)
			}
			for _, n := range []int{mtu - overhead, mtu - overhead + 1, 1500, 1499} {
				in := large(src, dst, flagsTo(dst), n)
				o.originated = nil
				out := w.expect(0, in, 1)
				list := append(o.originated, out)
				if (n+overhead > mtu) != (len(list) > 1) {
					t.Fatalf("%d bytes leave in %d packets, MTU %d", n, len(list), mtu)
				}
				whole := out
				if len(list) > 1 {
					whole = reassemble(t, list, mtu)
				}
				_, _, inner := unwrap(t, mode, whole)
				if want := lessOne(in); !bytes.Equal(inner[14:], want[14:]) {
					t.Fatalf("%d bytes in %d fragments: another inner packet", n, len(list))
				}
			}
		}
	})
}

// An error from the path lowers the MTU of the tunnel: the next packets are answered here, IPv6 never with less than
// 1280, and IPv6 packets of up to 1280 bytes leave in fragments.
func TestAnErrorLowersTheMTUOfATunnel(t *testing.T) {
	tunnelCases(t, "answer", func(t *testing.T, w *world, mode string, overhead int, src, dst string) {
		o := w.withOutput()
		whole := client(src, dst, flagsTo(dst)).bytes()
		six := whole[14]>>4 == 6
		if !six {
			wire.IPv4(whole[14:]).SetDontFragment(true)
			wire.IPv4(whole[14:]).FillChecksum()
		}
		first := w.expect(0, whole, 1)
		w.expect(0, large(src, dst, flagsTo(dst), 1500-overhead), 1)
		want := 1300 - overhead
		if six {
			want = 1280
		}
		if got := toldBy(t, w.expect(1, pathError(t, first, 1300), 0)); got.mtu != uint32(want) {
			t.Errorf("told %v of the error", got)
		}
		if got := toldBy(t, w.expect(0, dontFragment(large(src, dst, flagsTo(dst), 1500-overhead)), 0)); got.mtu != uint32(want) {
			t.Errorf("told %v", got)
		}
		w.expect(0, dontFragment(large(src, dst, flagsTo(dst), want+1)), 0)
		if len(o.originated) != 0 {
			t.Error("fragments of a packet that is answered")
		}
		if !six { // without Don't Fragment
			in := large(src, dst, flagsTo(dst), want+1)
			out := w.expect(0, in, 1)
			_, _, inner := unwrap(t, mode, reassemble(t, append(o.originated, out), 1300))
			if right := lessOne(in); !bytes.Equal(inner[14:], right[14:]) {
				t.Errorf("another inner packet of %d bytes", len(inner)-14)
			}
			o.originated = nil
		}
		in := dontFragment(large(src, dst, flagsTo(dst), want))
		out := w.expect(0, in, 1)
		list := append(o.originated, out)
		if fits := want+overhead <= 1300; fits != (len(list) == 1) {
			t.Fatalf("%d bytes leave in %d packets", want, len(list))
		}
		if len(list) > 1 {
			_, _, inner := unwrap(t, mode, reassemble(t, list, 1300))
			if right := lessOne(in); !bytes.Equal(inner[14:], right[14:]) {
				t.Errorf("another inner packet of %d bytes", len(inner)-14)
			}
		}
		o.originated, o.room = nil, 0
		if want+overhead > 1300 {
			w.refused(0, in, packet.DropNoFrame)
		}
		w.expect(1, pathError(t, first, 1250), 0)
		w.now = w.now.Add(9 * time.Minute)
		w.expect(0, dontFragment(large(src, dst, flagsTo(dst), 1500-overhead)), 0)
		w.now = w.now.Add(2 * time.Minute) // RFC 8201 4: the path may be wider again
		w.expect(0, dontFragment(large(src, dst, flagsTo(dst), 1500-overhead)), 1)
	})
}

// A link of the gateway's own with an MTU below 1280 and the overhead is a path like others.
func TestIPv6IsNeverAskedForLessThan1280(t *testing.T) {
	tunnelCases(t, "answer", func(t *testing.T, w *world, mode string, overhead int, src, dst string) {
		if !strings.HasPrefix(src, "[") {
			return
		}
		o := w.withOutput()
		d := w.g.snap.Load().Devices[1]
		d.MTU = 1290
		w.g.SetDevice(1, d)
		if got := toldBy(t, w.expect(0, large(src, dst, flagsTo(dst), 1281), 0)); got.mtu != 1280 {
			t.Errorf("told %v", got)
		}
		in := large(src, dst, flagsTo(dst), 1280)
		out := w.expect(0, in, 1)
		_, _, inner := unwrap(t, mode, reassemble(t, append(o.originated, out), 1290))
		if want := lessOne(in); len(o.originated) != 1 || !bytes.Equal(inner[14:], want[14:]) {
			t.Errorf("%d fragments", 1+len(o.originated))
		}
	})
}

// A packet of several frames leaves in fragments as any other, and its frames are released.
func TestPacketsOfSeveralFramesLeaveInFragments(t *testing.T) {
	tunnelCases(t, "fragment", func(t *testing.T, w *world, mode string, _ int, src, dst string) {
		for _, cuts := range [][]int{{1900, 3900}, {1901, 3900}, {101, 1500, 3000}, {1901, 3902, 4005}} {
			o := w.withOutput()
			in := large(src, dst, flagsTo(dst), 4001)
			b := w.chain(in, cuts...)
			w.run(b)
			if d := b.D[1]; d.Verdict != packet.Forward || d.Port != 1 || d.Flags.Has(packet.FlagMore) {
				t.Fatalf("%+v", d)
			}
			for i := 2; i < b.Len()-1; i++ {
				if b.D[i].Verdict != packet.Release {
					t.Fatalf("descriptor %d: %v", i, b.D[i].Verdict)
				}
			}
			_, _, inner := unwrap(t, mode, reassemble(t, append(o.originated, bytes.Clone(b.Bytes(1))), 1500))
			if want := lessOne(in); !bytes.Equal(inner[14:], want[14:]) {
				t.Fatalf("cut at %v: another inner packet, of %d bytes", cuts, len(inner)-14)
			}
		}
	})
}
