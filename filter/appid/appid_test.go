package appid

import (
	"encoding/binary"
	"testing"
)

// A flow takes any packets, and keeps no more than it says.
func FuzzFlow(f *testing.F) {
	f.Add([]byte("\x06\x01\xbb\x30GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("\x11\x00\x35\x20\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		transport := uint8(tcp)
		if b[0]&1 == 1 {
			transport = udp
		}
		var flow Flow
		p := Packet{Transport: transport, Destination: binary.BigEndian.Uint16(b[1:]), Source: 40000}
		for b = b[3:]; len(b) > 0; {
			n := min(int(b[0]&0x7f)*4, len(b)-1)
			p.Reply, p.Payload = b[0]&0x80 != 0, b[1:1+n]
			before := flow.Protocol()
			if got := flow.Packet(&p); before != Unknown && got != before && (before != STUN || got != DTLS) {
				t.Fatalf("%v became %v", before, got)
			}
			p.Sequence += uint32(n)
			b = b[1+n:]
		}
		if c := flow.collector; c != nil && (len(c.stream) > 2*maxHello || c.initial.Size() > 3*maxHello) {
			t.Fatalf("%d and %d bytes are kept", len(c.stream), c.initial.Size())
		}
	})
}
