package control

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// split cuts a frame without extension headers into fragments that carry at most size bytes of data
// each, a multiple of 8.
func split(p []byte, size int, id uint32) (list [][]byte) {
	const l3 = 14
	header := 20
	if p[l3]>>4 == 6 {
		header = 40
	}
	data := p[l3+header:]
	for at := 0; at < len(data); at += size {
		piece := data[at:min(at+size, len(data))]
		f := bytes.Clone(p[:l3+header])
		more := at+size < len(data)
		if header == 20 {
			ip := wire.IPv4(f[l3:])
			ip.SetTotalLen(uint16(header + len(piece)))
			ip.SetID(uint16(id))
			ip.SetMoreFragments(more)
			ip.SetFragmentOffset(at)
			ip.FillChecksum()
		} else {
			frag := [8]byte{f[l3+6]}
			binary.BigEndian.PutUint16(frag[2:], uint16(at))
			if more {
				frag[3] |= 1
			}
			binary.BigEndian.PutUint32(frag[4:], id)
			f[l3+6] = wire.ProtoFragment
			binary.BigEndian.PutUint16(f[l3+4:], uint16(8+len(piece)))
			f = append(f, frag[:]...)
		}
		list = append(list, append(f, piece...))
	}
	return list
}

// join puts fragments together again, in any order, and checks that they are of one datagram.
func join(t *testing.T, list [][]byte) []byte {
	t.Helper()
	var head []byte
	data := map[int][]byte{}
	total := 0
	id := uint32(0)
	for i, p := range list {
		const l3 = 14
		var at int
		var piece []byte
		var is uint32
		if p[l3]>>4 == 4 {
			ip := wire.IPv4(p[l3:])
			if !ip.ChecksumOK() {
				t.Fatalf("fragment %d has a wrong header checksum", i)
			}
			at, piece, is = ip.FragmentOffset(), ip.Payload(), uint32(ip.ID())
			if at == 0 {
				head = bytes.Clone(p[:l3+20])
			}
		} else {
			proto, off, frag, ok := wire.Upper6(p[l3:])
			if !ok || proto != wire.ProtoUDP && proto != wire.ProtoICMPv6 {
				t.Fatalf("fragment %d: protocol %d", i, proto)
			}
			at, piece, is = int(frag.Offset), p[l3+off:], frag.ID
			if at == 0 {
				head = bytes.Clone(p[:l3+40])
				head[l3+6] = proto
			}
		}
		if i > 0 && is != id {
			t.Fatalf("fragment %d has identification %d, the first %d", i, is, id)
		}
		id = is
		data[at] = piece
		total = max(total, at+len(piece))
	}
	all := make([]byte, total)
	for at, piece := range data {
		copy(all[at:], piece)
	}
	if head[14]>>4 == 4 {
		ip := wire.IPv4(head[14:])
		ip.SetTotalLen(uint16(20 + total))
		ip.SetMoreFragments(false)
		ip.FillChecksum()
	} else {
		binary.BigEndian.PutUint16(head[14+4:], uint16(total))
	}
	return append(head, all...)
}

// datagrams are long ones from a client, over IPv4 and IPv6.
func datagrams() []seg {
	four, six := client(host, dns, ""), client("[2001:db8::9]:40000", "[2001:db8:1::1]:53", "")
	four.payload = strings.Repeat("fragments ", 300)
	six.payload = four.payload
	return []seg{four, six}
}

func TestFragmentsFollowTheirFirstBothWays(t *testing.T) {
	for _, source := range []string{"", "source: client"} {
		for _, s := range datagrams() {
			w := newWorld(t, fill(source))
			var out [][]byte
			for _, p := range split(s.bytes(), 1000, 77) {
				out = append(out, w.expect(0, p, 1))
			}
			got := join(t, out)
			w.checksumsRight(got)
			if f := flowOf(got); f.payload != s.payload || f.dst.Port() != 5353 {
				t.Fatalf("%v -> %v, %d bytes", f.src, f.dst, len(f.payload))
			}
			back := answer(got, "")
			back.payload = strings.Repeat("reply", 600)
			out = nil
			for _, p := range split(back.bytes(), 512, 0x12345) {
				out = append(out, w.expect(1, p, 0))
			}
			got = join(t, out)
			w.checksumsRight(got)
			if f := flowOf(got); f.payload != back.payload || f.src != s.dst || f.dst != s.src {
				t.Fatalf("reply %v -> %v", f.src, f.dst)
			}
		}
	}
}

// Two clients may number their datagrams alike: behind the gateway they have one source address.
func TestFragmentsOfTwoClientsKeepApart(t *testing.T) {
	w := newWorld(t, fill(""))
	ids := map[uint16]bool{}
	for _, src := range []string{"198.18.0.9:4000", "198.18.0.10:4000"} {
		s := client(src, dns, "")
		s.payload = strings.Repeat("x", 3000)
		for _, p := range split(s.bytes(), 1000, 77) {
			ids[wire.IPv4(w.expect(0, p, 1)[14:]).ID()] = true
		}
	}
	if len(ids) != 2 {
		t.Errorf("%d identifications behind the gateway, want 2", len(ids))
	}
}

func TestFragmentsAreDroppedWithoutTheirFirst(t *testing.T) {
	for _, s := range datagrams() {
		frags := split(s.bytes(), 1000, 77)
		w := newWorld(t, fill(""))
		w.refused(0, frags[1], packet.DropFragment)
		w.expect(0, frags[0], 1)
		w.expect(0, frags[1], 1)
		w.expect(0, frags[0], 1) // a duplicate on the way
		other := split(s.bytes(), 1000, 78)
		w.refused(0, other[1], packet.DropFragment)
		w.now = w.now.Add(29 * time.Second)
		w.expect(0, frags[2], 1)
		w.now = w.now.Add(2 * time.Second)
		w.refused(0, frags[3], packet.DropFragment)
	}
}

func TestFragmentsThatContradictTheFirstPoisonTheDatagram(t *testing.T) {
	for _, s := range datagrams() {
		otherPorts := s
		otherPorts.payload = s.payload[1:]
		ports := split(otherPorts.bytes(), 1000, 77)
		at := 14 + 20
		if s.src.Addr().Is6() {
			at = 14 + 48
		}
		ports[0][at+1]++
		for _, c := range []struct {
			name string
			p    []byte
		}{
			{"a first one with other ports", ports[0]},
			{"a first one of another length", split(s.bytes(), 504, 77)[0]},
			{"one that overlaps the first", split(s.bytes(), 504, 77)[1]},
			{"one that overlaps its last 8 bytes", split(s.bytes(), 496, 77)[2]},
			{"one at offset 8", split(s.bytes(), 8, 77)[1]},
		} {
			w := newWorld(t, fill(""))
			frags := split(s.bytes(), 1000, 77)
			w.expect(0, frags[0], 1)
			w.expect(0, frags[1], 1)
			w.refused(0, c.p, packet.DropFragment)
			w.refused(0, frags[2], packet.DropFragment)
			w.refused(0, frags[0], packet.DropFragment)
			if t.Failed() {
				t.Fatal(c.name)
			}
			w.now = w.now.Add(31 * time.Second)
			w.expect(0, frags[0], 1)
		}
	}
}

func TestFragmentsThatLieAreMalformed(t *testing.T) {
	s := datagrams()[0]
	frags := split(s.bytes(), 1000, 77)
	edit := func(p []byte, f func(ip wire.IPv4)) []byte {
		p = bytes.Clone(p)
		f(wire.IPv4(p[14:]))
		wire.IPv4(p[14:]).FillChecksum()
		return p
	}
	for name, p := range map[string][]byte{
		"a length that is no multiple of 8": edit(frags[1], func(ip wire.IPv4) { ip.SetTotalLen(ip.TotalLen() - 1) }),
		"a length that is a multiple of 4":  edit(frags[1], func(ip wire.IPv4) { ip.SetTotalLen(ip.TotalLen() - 4) }),
		"an end beyond 65535":               edit(frags[1], func(ip wire.IPv4) { ip.SetFragmentOffset(65000) }),
		"no data":                           edit(frags[1], func(ip wire.IPv4) { ip.SetTotalLen(20) }),
		"a first without a whole header":    edit(frags[0], func(ip wire.IPv4) { ip.SetTotalLen(24); ip.SetProto(wire.ProtoUDP) }),
	} {
		w := newWorld(t, fill(""))
		w.expect(0, frags[0], 1)
		w.refused(0, p, packet.DropMalformed)
		w.refused(0, frags[1], packet.DropFragment)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestTinyFirstFragmentsPoisonTCPToo(t *testing.T) {
	w := newWorld(t, fill(""))
	w.connect(host)
	s := client(host, web, "PA")
	s.payload = strings.Repeat("x", 3000)
	w.refused(0, split(s.bytes(), 16, 5)[0], packet.DropMalformed) // RFC 1858 3: the flags come later
	w.refused(0, split(s.bytes(), 8, 5)[1], packet.DropFragment)
	for _, p := range split(s.bytes(), 1000, 6) {
		w.expect(0, p, 1)
	}
	w.refused(0, split(s.bytes(), 8, 6)[1], packet.DropFragment) // RFC 3128: it would change the flags
}

func TestOldDatagramsMakeRoom(t *testing.T) {
	w := newWorld(t, strings.Replace(fill(""), "size: 1024", "size: 1024, fragments: 64", 1))
	s := datagrams()[0]
	for id := range uint32(1000) {
		w.now = w.now.Add(20 * time.Millisecond)
		for _, p := range split(s.bytes(), 1000, id) {
			w.expect(0, p, 1)
		}
	}
	w.refused(0, split(s.bytes(), 1000, 1)[1], packet.DropFragment)
}

func TestFragmentsAreNotForwardedToOtherHosts(t *testing.T) {
	w := newWorld(t, fill(""))
	s := datagrams()[0]
	s.to = [6]byte{2, 1, 1, 1, 1, 1}
	w.refused(0, split(s.bytes(), 1000, 1)[0], packet.DropUnsupported)
}

func TestALaterFragmentOpensNoConnection(t *testing.T) {
	w := newWorld(t, strings.Replace(fill(""), "size: 1024", "size: 1024, udp: 1s", 1))
	s := datagrams()[0]
	frags := split(s.bytes(), 1000, 77)
	w.expect(0, frags[0], 1)
	w.after(6 * time.Second)
	w.refused(0, frags[1], packet.DropFragment)
	if n := w.g.Status().Connections; n != 0 {
		t.Errorf("%d connections", n)
	}
}

// Later fragments are easily forged: they keep no connection alive and change nobody's link address.
func TestALaterFragmentRefreshesNothing(t *testing.T) {
	for _, s := range datagrams() {
		w := newWorld(t, fill(""))
		sent := split(s.bytes(), 1200, 7)
		whole := s
		whole.payload = ""
		out := w.expect(0, whole.bytes(), 1)
		w.expect(0, sent[0], 1)
		reply := answer(out, "")
		reply.payload = s.payload
		back := split(reply.bytes(), 1200, 8)
		w.expect(1, back[0], 0)
		before := w.connOf(s.src.String())
		w.now = w.now.Add(time.Second)
		forged := bytes.Clone(sent[1])
		copy(forged[6:12], []byte{2, 9, 9, 9, 9, 9})
		w.expect(0, forged, 1)
		w.expect(1, back[1], 0)
		if after := w.connOf(s.src.String()); after != before {
			t.Errorf("%v: from %+v to %+v", s.src, before, after)
		}
	}
}

// What is not served takes nobody's room.
func TestARefusedFirstFragmentIsNotRemembered(t *testing.T) {
	w := newWorld(t, fill(""))
	s := client(host, "198.18.1.1:9", "")
	s.payload = strings.Repeat("fragments ", 300)
	sent := split(s.bytes(), 1200, 7)
	w.refused(0, sent[0], packet.DropNoService)
	w.refused(0, sent[1], packet.DropFragment)
}
