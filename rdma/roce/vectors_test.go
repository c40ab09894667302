package roce

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vectors is what testdata/vectors.py has written by scapy: "v4 04 hexadecimal frame".
//
//go:embed testdata/vectors.txt
var vectors string

// hardware lists packets from their IP header on, as network cards and switches have sent them, with their ICRC: a
// congestion notification, and an RDMA WRITE ONLY of UC.
var hardware = []string{
	"45c2003c718c4000401191610a0011010a001201" + "000012b700280000" + "8100ffff40000118" + "00000000" + "00000000000000000000000000000000" + "82fd002a",
	"4501004004784000" + "4011b4d5" + "c0a80007c0a80007" + "c00012b7002caca2" + "2460ffff000000d300cf1710" + "4630818be28935d90e9a95505401be885e500000" + "78f353f3",
}

// eachVector calls f with each frame of scapy and of hardware.
func eachVector(t testing.TB, f func(op Opcode, frame []byte)) {
	t.Helper()
	n := 0
	for line := range strings.Lines(vectors) {
		v := strings.Fields(line)
		op, err := hex.DecodeString(v[1])
		if err != nil {
			t.Fatal(err)
		}
		frame, err := hex.DecodeString(v[2])
		if err != nil {
			t.Fatal(err)
		}
		f(Opcode(op[0]), frame)
		n++
	}
	if n != 76 {
		t.Fatalf("%d vectors, want 76", n)
	}
}

func TestFramesOfScapy(t *testing.T) {
	eachForm(t, func(t *testing.T) {
		eachVector(t, func(op Opcode, frame []byte) {
			var f Frame
			if why := f.Parse(frame); why != Accepted {
				t.Fatalf("%v: %v", op, why)
			}
			if why := f.Verify(); why != Accepted {
				t.Fatalf("%v: %v", op, why)
			}
			if f.Opcode != op {
				t.Fatalf("opcode %v, want %v", f.Opcode, op)
			}
			if again := build(&f); !bytes.Equal(again, frame) {
				t.Fatalf("%v: built again:\n%x, want\n%x", op, again, frame)
			}
		})
	})
}

// build makes a frame again, with the payload in pieces.
func build(f *Frame) []byte {
	b := make([]byte, Overhead+len(f.Payload))
	cut := len(f.Payload) / 3
	return b[:Build(b, &f.Envelope, &f.Packet, f.Payload[:cut], f.Payload[cut:])]
}

// TestFieldsOfScapysFrames compares the values that vectors.py has put in.
func TestFieldsOfScapysFrames(t *testing.T) {
	i := 0
	eachVector(t, func(op Opcode, frame []byte) {
		n := uint32(i / 2)
		i++
		if op == CNP {
			return
		}
		var f Frame
		f.Parse(frame)
		want := Packet{Opcode: op, PKey: 0xffff, DestQP: 0x123456 ^ n, PSN: 0xffffff - n, Payload: f.Payload}
		want.Flags = Flags(n&1)*Solicited | Flags(n>>1&1)*MigReq | Flags(n>>2&1)*AckReq
		part := op.Part()
		if part&(HasRETH|HasAtomic) != 0 {
			want.VA, want.RKey = 0x1122334455667788, 0xa1b2c3d4
		}
		if part.Has(HasRETH) {
			want.Length = 5000
		}
		if part.Has(HasAtomic) {
			want.Swap, want.Compare = 0x0102030405060708, 0x1112131415161718
		}
		if part.Has(HasAETH) {
			want.Syndrome, want.MSN = UnlimitedCredits, 7
		}
		if part.Has(HasAtomAck) {
			want.Original = 0x2122232425262728
		}
		if part.Has(HasDETH) {
			want.QKey, want.SrcQP = 0x80010000, 0xabcde
		}
		if part.Has(HasImm) {
			want.Imm = 0xcafef00d
		}
		if part.Has(HasIETH) {
			want.InvKey = 0x0ddba11
		}
		if diff := cmp.Diff(want, f.Packet); diff != "" {
			t.Errorf("%v: %s", op, diff)
		}
		for j, v := range f.Payload {
			if v != byte(j*7+len(f.Payload)) {
				t.Fatalf("%v: byte %d of the payload is %d", op, j, v)
			}
		}
	})
}

func TestPacketsOfHardware(t *testing.T) {
	for _, h := range hardware {
		l3, _ := hex.DecodeString(h)
		end := len(l3) - ICRCLen
		if got, want := ICRC(l3[:end]), binary.LittleEndian.Uint32(l3[end:]); got != want {
			t.Errorf("ICRC %08x, want %08x", got, want)
		}
		var f Frame
		frame := append(binary.BigEndian.AppendUint16(make([]byte, 12), 0x0800), l3...)
		if why := f.Parse(frame); why != Accepted {
			t.Errorf("%v", why)
		}
	}
}

// rxe has packets that Linux's rdma_rxe (6.1) has sent, one of each opcode and syndrome, as vectors.txt.
//
//go:embed testdata/rxe.txt
var rxe string

func TestPacketsOfRxe(t *testing.T) {
	n := 0
	for line := range strings.Lines(rxe) {
		v := strings.Fields(line)
		frame, err := hex.DecodeString(v[1])
		if err != nil {
			t.Fatal(err)
		}
		var f Frame
		if why := f.Parse(frame); why != Accepted || f.Verify() != Accepted || hex.EncodeToString(frame[42:43]) != v[0] {
			t.Errorf("%s: %v, %v", f.Opcode, why, f.Verify())
		}
		if again := build(&f); !bytes.Equal(again, frame) {
			t.Errorf("%v: built again:\n%x, want\n%x", f.Opcode, again, frame)
		}
		n++
	}
	if n != 19 {
		t.Errorf("%d packets", n)
	}
}

// TestRoutersMayChange has every bit that the ICRC does not cover, and no other, changed without effect.
func TestRoutersMayChange(t *testing.T) {
	eachVector(t, func(op Opcode, frame []byte) {
		var f Frame
		f.Parse(frame)
		l3 := len(frame) - len(f.l3)
		for bit := l3 * 8; bit < len(frame)*8; bit++ {
			frame[bit/8] ^= 1 << (7 - bit%8)
			var changed Frame
			why := changed.Parse(frame)
			if why == Accepted {
				why = changed.Verify()
			}
			frame[bit/8] ^= 1 << (7 - bit%8)
			if mutable(&f, bit/8-l3, bit%8) != (why == Accepted) {
				t.Fatalf("%v: bit %d of byte %d: %v", op, bit%8, bit/8-l3, why)
			}
		}
	})
}

// mutable reports whether bit (0 is the first) of a byte from the IP header on changes on the way.
func mutable(f *Frame, at, bit int) bool {
	ip := at == 1 || at == 8 || at == 10 || at == 11
	if !f.Src.Is4() {
		ip = at == 0 && bit >= 4 || at >= 1 && at <= 3 || at == 7
	}
	return ip || at == f.l3ln-2 || at == f.l3ln-1 || at == f.l3ln+4
}
