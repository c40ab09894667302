package stack

import (
	"testing"

	"github.com/millrace/millrace/packet"
)

func TestBridgeSwapsThePortsOfAPair(t *testing.T) {
	b := packet.NewBatch(nil, 4)
	for port := range uint8(4) {
		b.Append(packet.Desc{Port: port})
	}
	Bridge{}.Handle(0, b)
	for i, want := range []uint8{1, 0, 3, 2} {
		if d := b.D[i]; d.Port != want || d.Verdict != packet.Forward {
			t.Errorf("from port %d to %d (%v), want %d", i, d.Port, d.Verdict, want)
		}
	}
}

func TestBridgeLeavesVerdictsAlone(t *testing.T) {
	b := packet.NewBatch(nil, 1)
	b.Append(packet.Desc{Verdict: packet.DropRule})
	Bridge{}.Handle(0, b)
	if b.D[0].Verdict != packet.DropRule || b.D[0].Port != 0 {
		t.Errorf("%+v", b.D[0])
	}
}
