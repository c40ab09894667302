package replay

import (
	"context"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/wire"
)

// Options that contradict themselves are no fault of the header, which has their length as a whole (RFC 791 3.1): the
// decoder refuses the packet, and nothing is left to compare.
func TestVerifyLeavesOutWhatTheDecoderRefuses(t *testing.T) {
	a, b := netip.MustParseAddrPort("198.18.0.1:1000"), netip.MustParseAddrPort("192.0.2.1:80")
	var frames [][]byte
	for _, options := range [][]byte{{0x44, 0, 1, 1}, {0x83, 40, 4, 0}, {1, 1, 1, 0x44}, {1, 1, 1, 0}} {
		frames = append(frames, ether(wire.EtherTypeIPv4, v4(wire.ProtoUDP, a, b, 0, options, segment(wire.ProtoUDP, a, b, 4))))
	}
	v, err := Verify(context.Background(), Config{Files: []string{record(t, frames)}})
	if err != nil || v.Count != 0 || v.Packets != 4 || v.Decoded != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}
