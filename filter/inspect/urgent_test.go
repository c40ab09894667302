package inspect

import (
	"testing"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// urgentSegment is a segment of the client whose byte before the urgent pointer is urgent.
func urgentSegment(seq uint32, pointer uint16, payload string) []byte {
	h := wire.TCPHeader{SrcPort: 40000, DstPort: 80, Seq: seq, Ack: 5000, Flags: wire.FlagACK | wire.FlagURG, Window: 65535, Urgent: pointer}
	return ether(wire.EtherTypeIPv4, ipPacket(client, server, wire.ProtoTCP, append(wire.AppendTCP(nil, &h), payload...)))
}

// A receiver reads the stream without its urgent bytes, in whatever order their segments come.
func TestUrgentBytesAreNoPartOfTheText(t *testing.T) {
	type segment struct {
		seq     uint32
		pointer uint16 // 0: no urgent byte
		text    string
	}
	for name, segments := range map[string][]segment{
		"in one segment":  {{1, 6, "attacXk at dawn"}},
		"at its begin":    {{1, 0, "attack"}, {7, 1, "X at dawn"}},
		"at its end":      {{1, 7, "attackX"}, {8, 0, " at dawn"}},
		"alone":           {{1, 0, "attack"}, {7, 1, "X"}, {8, 0, " at dawn"}},
		"sent again":      {{1, 6, "attacXk "}, {1, 6, "attacXk "}, {4, 3, "acXk "}, {9, 0, "at dawn"}},
		"behind it first": {{9, 0, "at dawn"}, {1, 6, "attacXk "}},
		"two":             {{1, 6, "attacXk "}, {9, 3, "atX dawn"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, Config{}, `alert tcp any any -> any any (flow:established,to_server; content:"attack at dawn"; sid:7;)`)
			g.open()
			for _, s := range segments {
				frame := urgentSegment(s.seq, s.pointer, s.text)
				if s.pointer == 0 {
					wire.TCP(frame[34:]).SetFlags(wire.FlagACK)
				}
				g.now += 1e6
				if r := g.e.Inspect(&Input{Now: g.now, Frame: frame, Dir: signature.ToServer}); r.Anomaly {
					t.Errorf("%q is an anomaly", s.text)
				}
			}
			if got := g.sids(); got != "7" {
				t.Errorf("alerts: %q", got)
			}
		})
	}
}

// Where the caller clears the flag, the byte is one of the stream. Where it cannot, in a tunnel, the segment is dropped.
func TestTreatmentsOfUrgentData(t *testing.T) {
	for _, c := range []struct {
		urgent  Urgent
		text    string
		tunnel  bool
		alerts  string
		outcome Outcome
	}{
		{UrgentApart, "attacXk at dawn", false, "7", Drop},
		{UrgentInline, "attacXk at dawn", false, "", Pass},
		{UrgentInline, "attack at dawn", false, "7", Drop},
		{UrgentDrop, "attack at dawn", false, "urgent data", Drop},
		{UrgentInline, "attack at dawn", true, "urgent data", Drop},
		{UrgentApart, "attacXk at dawn", true, "7", Drop},
	} {
		g := newGate(t, Config{Urgent: c.urgent}, `drop tcp any any -> any any (content:"attack at dawn"; sid:7;)`)
		frame := urgentSegment(1, 6, c.text)
		if c.tunnel {
			frame = ether(wire.EtherTypeIPv4, ipPacket(client, server, wire.ProtoIPIP, frame[14:]))
		} else {
			g.open()
		}
		if c.tunnel {
			h := wire.TCPHeader{SrcPort: 40000, DstPort: 80, Flags: wire.FlagSYN}
			syn := ipPacket(client, server, wire.ProtoTCP, wire.AppendTCP(nil, &h))
			g.e.Inspect(&Input{Now: g.now, Frame: ether(wire.EtherTypeIPv4, ipPacket(client, server, wire.ProtoIPIP, syn)), Dir: signature.ToServer})
		}
		r := g.e.Inspect(&Input{Now: g.now, Frame: frame, Dir: signature.ToServer})
		if got := g.sids(); got != c.alerts || r.Outcome != c.outcome {
			t.Errorf("%+v: alerts %q, %v", c, got, r.Outcome)
		}
		if r = g.e.Inspect(&Input{Now: g.now, Frame: urgentSegment(1, 0, ""), Dir: signature.ToServer}); c.urgent == UrgentDrop && r.Blocked {
			t.Error("urgent data has blocked its flow")
		}
	}
}
