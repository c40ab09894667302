package inspection

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// urgentFrame is a segment of a client with urgent data and its checksum.
func urgentFrame(payload string) []byte {
	frame := datagramOf(0, "")[:34]
	wire.IPv4(frame[14:]).SetTotalLen(uint16(40 + len(payload)))
	frame[23] = wire.ProtoTCP
	frame = wire.AppendTCP(frame, &wire.TCPHeader{SrcPort: 1000, DstPort: 80, Seq: 1, Flags: wire.FlagACK | wire.FlagURG, Urgent: 3})
	frame = append(frame, payload...)
	wire.TCP(frame[34:]).FillChecksum(wire.IPv4(frame[14:]).Pseudo())
	return frame
}

// `strip` lets the segment pass without the flag and with a right checksum; `drop` drops it where the policy may.
func TestUrgentDataIsStrippedOrDropped(t *testing.T) {
	for _, c := range []struct {
		urgent  config.Urgent
		mode    config.InspectionMode
		verdict packet.Verdict
		urg     bool
	}{
		{config.UrgentStrip, config.InspectionPrevent, packet.Forward, false},
		{config.UrgentStrip, config.InspectionDetect, packet.Forward, false},
		{config.UrgentDrop, config.InspectionPrevent, packet.DropInspection, true},
		{config.UrgentDrop, config.InspectionDetect, packet.Forward, true},
	} {
		t.Run(fmt.Sprint(c.urgent, " ", c.mode), func(t *testing.T) {
			i, dir := openedAs(t, evilRule, "drop from 192.0.2.9\n", Options{}, func(cfg *config.Config) {
				cfg.Inspection.Policies[0].Urgent, cfg.Inspection.Policies[0].Mode = c.urgent, c.mode
			})
			frame := urgentFrame("some text")
			if v := inspectIn(i.Loop(0), frame, &datapath.Inspected{Now: clock.Time(1), FromClient: true, Opens: true}); v != c.verdict {
				t.Errorf("verdict %v, want %v", v, c.verdict)
			}
			if s := wire.TCP(frame[34:]); s.Flags().Has(wire.FlagURG) != c.urg || s.Urgent() != map[bool]uint16{true: 3}[c.urg] || !s.ChecksumOK(wire.IPv4(frame[14:]).Pseudo()) {
				t.Errorf("flags %v, pointer %d, checksum right: %v", s.Flags(), s.Urgent(), s.ChecksumOK(wire.IPv4(frame[14:]).Pseudo()))
			}
			alerts := alertsOf(t, i, dir)
			if dropped := c.verdict == packet.DropInspection; dropped != (len(alerts) == 1 && alerts[0].Anomaly == "urgent data" && alerts[0].Action == "drop") {
				t.Errorf("alerts %+v", alerts)
			}
		})
	}
}

// A checksum that a device still has to make sums the fields after they have changed.
func TestStrippedUrgentDataLeavesPartialChecksums(t *testing.T) {
	frame := urgentFrame("some text")
	was := wire.TCP(frame[34:]).Checksum()
	d := packet.Desc{L4: 34, Proto: wire.ProtoTCP, Flags: packet.FlagIPv4 | packet.FlagOffload}
	if stripUrgent(&d, frame); wire.TCP(frame[34:]).Checksum() != was || wire.TCP(frame[34:]).Flags().Has(wire.FlagURG) {
		t.Error("the checksum has changed, or the flag has not")
	}
	frame = urgentFrame("")[:40] // cut
	stripUrgent(&packet.Desc{L4: 34, Proto: wire.ProtoTCP}, frame)
}

// The engine reads urgent bytes as the receiver does.
func TestUrgentDataIsInspectedAsTheReceiverReadsIt(t *testing.T) {
	for _, c := range []struct {
		urgent config.Urgent
		text   string
		want   int
	}{{config.UrgentStrip, "evil", 1}, {config.UrgentStrip, "evXil", 0}, {config.UrgentDrop, "evXil", 1}} {
		i, dir := openedAs(t, `alert tcp any any -> any any (content:"evil"; sid:7;)`, "drop from 192.0.2.9\n", Options{}, func(cfg *config.Config) {
			cfg.Inspection.Policies[0].Urgent, cfg.Inspection.Policies[0].Mode = c.urgent, config.InspectionDetect
		})
		inspectIn(i.Loop(0), urgentFrame(c.text), &datapath.Inspected{Now: 1, FromClient: true, Opens: true})
		if got := alertsOf(t, i, dir); len(got) != c.want {
			t.Errorf("%s %q: alerts %+v", c.urgent, c.text, got)
		}
	}
}
