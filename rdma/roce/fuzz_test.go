package roce

import (
	"bytes"
	"testing"
)

// FuzzParse has every accepted frame with a right ICRC built again: the headers behind Ethernet must come out as they came
// in, but for reserved bits, pad bytes and what IP has beside the envelope.
func FuzzParse(f *testing.F) {
	eachVector(f, func(_ Opcode, frame []byte) { f.Add(frame) })
	f.Add(sample(SendOnly, false, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		var fr Frame
		if why := fr.Parse(b); why >= Reasons || why.String() == "unknown" {
			t.Fatalf("reason %d", why)
		} else if why != Accepted {
			return
		}
		fr.Verify()
		var grh [40]byte
		fr.GRH(&grh)
		if !bytes.Equal(b, before) {
			t.Fatal("the frame has changed")
		}
		var again Frame
		out := build(&fr)
		if why := again.Parse(out); why != Accepted || again.Verify() != Accepted {
			t.Fatalf("built again: %v\n%x\n%x", why, b, out)
		}
		if !bytes.Equal(again.Payload, fr.Payload) || again.Envelope != fr.Envelope {
			t.Fatalf("%+v\n%+v", fr, again)
		}
		if n := len(fr.Payload); !bytes.Equal(again.AppendHeaders(nil, n), fr.AppendHeaders(nil, n)) {
			t.Fatalf("%+v\n%+v", fr.Packet, again.Packet)
		}
	})
}

// FuzzCopyCRC compares the forms on lengths and bytes of the fuzzer's choice.
func FuzzCopyCRC(f *testing.F) {
	f.Add([]byte("millrace"), uint32(0), 40)
	f.Fuzz(func(t *testing.T, seed []byte, crc uint32, times int) {
		src := bytes.Repeat(seed, max(0, times%64))
		dst := make([]byte, len(src))
		if got, want := CopyCRC(dst, src, crc), slowCRC(src, crc); got != want || !bytes.Equal(dst, src) {
			t.Fatalf("%d bytes: %08x, want %08x", len(src), got, want)
		}
	})
}

// slowCRC computes a CRC-32 bit by bit.
func slowCRC(b []byte, crc uint32) uint32 {
	crc = ^crc
	for _, v := range b {
		crc ^= uint32(v)
		for range 8 {
			crc = crc>>1 ^ 0xedb88320*(crc&1)
		}
	}
	return ^crc
}
