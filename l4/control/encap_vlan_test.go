package control

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/millrace/millrace/wire"
)

// Tunnels and answers have the tag of the VLAN that they leave by: the hop's, and that which the packet
// came with.
func TestTunnelsAndAnswersAreTagged(t *testing.T) {
	for _, c := range tunnels {
		config := parse(t, fmt.Sprintf(tunnelConfig, c.mode, c.backend))
		for _, id := range []uint16{0, 1, 77} {
			w := newWorldWith(t, config, hopsOn(config, id))
			in := client(host, web, "S").bytes()
			for _, p := range [][]byte{in, tag(in, wire.EtherTypeVLAN, 5)} {
				out := w.expect(0, p, 1)
				if id != 0 {
					if out[12] != 0x81 || wire.VLAN(out[14:]).ID() != id {
						t.Errorf("VLAN %d: %x", id, out[:18])
					}
					out = append(bytes.Clone(out[:12]), out[16:]...)
				}
				if _, _, inner := unwrap(t, c.mode, out); !bytes.Equal(inner[14:], lessOne(in)[14:]) {
					t.Errorf("VLAN %d: inner packet %x", id, inner[14:])
				}
			}
			big := large(host, web, "PA", 1500)
			out := w.expect(0, tag(big, wire.EtherTypeVLAN, 5), 0)
			if out[12] != 0x81 || wire.VLAN(out[14:]).ID() != 5 {
				t.Errorf("an answer: %x", out[:18])
			}
			if got := toldBy(t, append(bytes.Clone(out[:12]), out[16:]...)); !bytes.Equal(got.quote, big[14:14+548]) {
				t.Errorf("told %v", got)
			}
		}
	}
}
