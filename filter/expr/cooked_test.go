package expr_test

import (
	"encoding/binary"
	"testing"

	"github.com/millrace/millrace/filter/expr"
)

// Cooked captures name the direction of each packet in their header: the packet type, whose value 4 is a packet that this
// host has sent (PACKET_OUTGOING of packet(7)).
func TestDirectionOfCookedCaptures(t *testing.T) {
	cooked := func(packetType byte) []byte { // packet type, ARPHRD type, address length, address, EtherType
		b := make([]byte, 16+20)
		binary.BigEndian.PutUint16(b, uint16(packetType))
		binary.BigEndian.PutUint16(b[14:], 0x0800)
		return b
	}
	cooked2 := func(packetType byte) []byte { // EtherType, reserved, interface, ARPHRD type, packet type
		b := make([]byte, 20+20)
		binary.BigEndian.PutUint16(b, 0x0800)
		b[10] = packetType
		return b
	}
	for _, c := range []struct {
		link  expr.LinkType
		frame func(byte) []byte
	}{{expr.LinkLinuxCooked, cooked}, {expr.LinkLinuxCooked2, cooked2}} {
		in, err := expr.Compile("inbound", c.link, expr.Options{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := expr.Compile("outbound and ip", c.link, expr.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for packetType := range byte(5) { // to this host, broadcast, multicast, to another host, outgoing
			b := c.frame(packetType)
			sent := packetType == 4
			if in.Match(b, len(b)) == sent || out.Match(b, len(b)) != sent {
				t.Errorf("%v, packet type %d: inbound %v, outbound %v", c.link, packetType, in.Match(b, len(b)), out.Match(b, len(b)))
			}
		}
	}
}
