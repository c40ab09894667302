package roce

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/millrace/millrace/wire"
)

// sample returns a frame of IPv4 without a tag, or of IPv6.
func sample(op Opcode, v6 bool, payload int) []byte {
	e := Envelope{SrcMAC: wire.MAC{2, 1}, DstMAC: wire.MAC{2, 2}, Src: wire.AddrFrom4([4]byte{198, 18, 0, 1}), Dst: wire.AddrFrom4([4]byte{198, 18, 0, 2}), SrcPort: 50000, TTL: 64}
	if v6 {
		e.Src, e.Dst = wire.Addr{0x20, 1, 0xd, 0xb8, 15: 1}, wire.Addr{0x20, 1, 0xd, 0xb8, 15: 2}
	}
	b := make([]byte, Overhead+payload)
	return b[:Build(b, &e, &Packet{Opcode: op, PKey: 0xffff, DestQP: 17, PSN: 5}, make([]byte, payload))]
}

func TestRejectedFrames(t *testing.T) {
	const ip, udp, bth = 14, 34, 42
	set := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], v); return b }
	}
	cut := func(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }
	for _, c := range []struct {
		name    string
		op      Opcode
		payload int
		damage  func(b []byte) []byte
		want    Reason
	}{
		{"nothing", SendOnly, 8, cut(0), Accepted},
		{"Ethernet's own padding", SendOnly, 0, func(b []byte) []byte { return append(b, 0, 0, 0) }, Accepted},
		{"inside of the Ethernet header", SendOnly, 8, func(b []byte) []byte { return b[:13] }, Truncated},
		{"ARP", SendOnly, 8, set(12, 8, 6), NotRoCE},
		{"TCP", SendOnly, 8, set(ip+9, 6), NotRoCE},
		{"another port", SendOnly, 8, set(udp+2, 0x12, 0xb6), NotRoCE},
		{"the last byte missing", SendOnly, 8, cut(1), Truncated},
		{"IP header alone", SendOnly, 8, func(b []byte) []byte { return b[:udp] }, Truncated},
		{"first fragment", SendOnly, 8, set(ip+6, 0x20), Fragmented},
		{"later fragment", SendOnly, 8, set(ip+7, 1), Fragmented},
		{"IP options", SendOnly, 8, set(ip, 0x46), BadLength},
		{"UDP shorter than IP", SendOnly, 8, set(udp+4, 0, 28), BadLength},
		{"UDP longer than IP", SendOnly, 8, set(udp+4, 0, 36), BadLength},
		{"UDP without its header", SendOnly, 8, set(udp+4, 0, 7), Truncated},
		{"transport version 1", SendOnly, 8, set(bth+1, 1), BadVersion},
		{"reserved operation", SendOnly, 8, set(bth, 0x15), BadOpcode},
		{"reliable datagram", SendOnly, 8, set(bth, 0x44), BadOpcode},
		{"UC cannot invalidate", SendOnly, 8, set(bth, 0x37), BadOpcode},
		{"UC cannot read", SendOnly, 8, set(bth, 0x2c), BadOpcode},
		{"UD has single packets", SendOnly, 8, set(bth, 0x60), BadOpcode},
		{"other congestion packets", SendOnly, 8, set(bth, 0x80), BadOpcode},
		{"READ request without RETH", SendOnly, 8, set(bth, byte(ReadRequest)), Truncated},
		{"READ request with payload", SendOnly, 20, set(bth, byte(ReadRequest)), BadLength},
		{"ACK with payload", SendOnly, 8, set(bth, byte(Acknowledge)), BadLength},
		{"CNP of less than 16 bytes", SendOnly, 12, set(bth, byte(CNP)), Truncated},
		{"length that 4 does not divide", SendOnly, 8, func(b []byte) []byte { b[ip+3]--; b[udp+5]--; return b }, BadLength},
		{"pad without payload", SendOnly, 0, set(bth+1, 0x10), BadLength},
		{"pad of all of the payload", SendOnly, 4, set(bth+1, 0x30), Accepted},
	} {
		var f Frame
		if got := f.Parse(c.damage(sample(c.op, false, c.payload))); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestMappedAddressesInIPv6 has an address that only IPv4 packets have as their GID.
func TestMappedAddressesInIPv6(t *testing.T) {
	for _, at := range []int{14 + 8, 14 + 24} {
		b := sample(SendOnly, true, 8)
		mapped := wire.AddrFrom4([4]byte{192, 0, 2, 1})
		copy(b[at:], mapped[:])
		var f Frame
		if why := f.Parse(b); why != BadAddress {
			t.Errorf("%v", why)
		}
	}
}

// TestNoPrefixIsAccepted cuts frames at every length.
func TestNoPrefixIsAccepted(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		whole := sample(WriteOnlyImm, v6, 5)
		for n := range whole {
			var f Frame
			if why := f.Parse(whole[:n]); why != Truncated {
				t.Errorf("%d of %d bytes: %v", n, len(whole), why)
			}
		}
	}
}

// TestShorterLengths has the lengths of IP and UDP cut together, so that less than a transport packet is left.
func TestShorterLengths(t *testing.T) {
	for n := 8; n < 8+BTHLen+ICRCLen; n++ {
		b := sample(SendOnly, false, 8)
		binary.BigEndian.PutUint16(b[14+2:], uint16(20+n))
		binary.BigEndian.PutUint16(b[34+4:], uint16(n))
		var f Frame
		if why := f.Parse(b); why != Truncated {
			t.Errorf("%d bytes from UDP on: %v", n, why)
		}
	}
}

// TestVersion1 builds and reads a packet behind a global route header, whose ICRC covers no UDP header.
func TestVersion1(t *testing.T) {
	e := Envelope{Src: wire.AddrFrom4([4]byte{198, 18, 0, 1}), Dst: wire.Addr{0xfe, 0x80, 15: 2}, TTL: 1, TOS: 0x48, V1: true}
	p := Packet{Opcode: WriteOnly, PKey: 0xffff, DestQP: 3, PSN: 9, VA: 4096, RKey: 7, Length: 5}
	b := make([]byte, 200)
	b = b[:Build(b, &e, &p, []byte("hello"))]
	var f Frame
	if why := f.Parse(b); why != Accepted || !f.V1 || string(f.Payload) != "hello" || f.Src != e.Src || f.VA != 4096 {
		t.Fatalf("%v: %+v", why, f)
	}
	if why := f.Verify(); why != Accepted {
		t.Fatal(why)
	}
	var grh [40]byte
	if f.GRH(&grh); !bytes.Equal(grh[:], b[14:54]) {
		t.Errorf("GRH %x", grh)
	}
	b[14+1], b[14+2], b[14+3], b[14+7] = 0xf, 1, 2, 99 // traffic class, flow label, hop limit
	if f.Parse(b) != Accepted || f.Verify() != Accepted {
		t.Error("routers may not change what they may")
	}
	b[14+6] = 17
	if why := f.Parse(b); why != NotRoCE {
		t.Errorf("next header UDP: %v", why)
	}
}

func TestGRHOfDatagrams(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		b := sample(SendOnly.Of(UD), v6, 4)
		var f Frame
		if why := f.Parse(b); why != Accepted {
			t.Fatal(why)
		}
		want := append(make([]byte, 20), b[14:34]...)
		if v6 {
			want = b[14:54]
		}
		var grh [40]byte
		if f.GRH(&grh); !bytes.Equal(grh[:], want) {
			t.Errorf("IPv6 %v: %x, want %x", v6, grh, want)
		}
	}
}
