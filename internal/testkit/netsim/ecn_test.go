package netsim

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// TestAccurateECNCountsWhatArrived has data flow both ways over a path that marks, in segments that are cut from large ones
// and merged again, or not. The judge is the network: what it delivered is what an end must have counted, and what its
// peer must know.
func TestAccurateECNCountsWhatArrived(t *testing.T) {
	for _, congestion := range []string{"reno", "cubic", "bbr", "dctcp"} {
		for _, stamps := range []bool{false, true} {
			for name, h := range map[string]HostConfig{
				"merged and cut": {Coalesce: 300 * time.Microsecond},
				"merged":         {Coalesce: 300 * time.Microsecond, Offload: 1000},
				"cut":            {NoGRO: true},
			} {
				name := fmt.Sprintf("%s, %s, timestamps %v", congestion, name, stamps)
				t.Run(name, func(t *testing.T) {
					countMarks(t, h, tcp.Options{Congestion: congestion, ECN: tcp.ECNAccurate, NoTimestamps: !stamps})
				})
			}
		}
	}
}

// TestOnlySYNsAreNotCounted is RFC 9768 3.2: a SYN counts neither itself nor its data, a SYN-ACK does.
func TestOnlySYNsAreNotCounted(t *testing.T) {
	for flags, want := range map[wire.TCPFlags]uint64{wire.FlagSYN: 0, wire.FlagSYN | wire.FlagACK: 1, wire.FlagACK: 1, wire.FlagACK | wire.FlagFIN: 1} {
		var k ecnCounts
		k.arrived(append(wire.AppendTCP(nil, &wire.TCPHeader{Flags: flags}), 1, 2, 3), wire.CE)
		if k.packets != want || k.bytes[wire.CE] != 3*want {
			t.Errorf("%v: %d packets, %d bytes", flags, k.packets, k.bytes[wire.CE])
		}
	}
}

func countMarks(t *testing.T, h HostConfig, o tcp.Options) {
	const there, back = 3 << 20, 2 << 20
	n := New(5)
	a, b := n.Host(h), n.Host(h)
	way := pmd.Impairment{Delay: 2 * time.Millisecond, CE: 10, Rate: 100e6, Queue: pmd.Queue{Bytes: 8 << 20}}
	n.Join(a, b, pmd.Profile{Tx: way, Rx: way})
	m := n.Monitor()
	arrived := map[wire.Addr]*ecnCounts{a.Addr: {}, b.Addr: {}}
	n.Watch(func(e *Event) {
		if e.What == Arrived {
			t, seg, mark, _ := Parse(e.Packet.Bytes)
			arrived[t.Local].arrived(seg, mark)
		}
	})
	f := n.Flow(FlowConfig{From: a, To: b, Bytes: there, Back: back, Options: o, Accept: o, Client: EndConfig{Hold: true}, Server: EndConfig{Hold: true}})
	if !n.RunUntil(time.Minute, func() bool { return f.Server.Received == there && f.Client.Received == back }) {
		t.Fatalf("%d and %d bytes in a minute", f.Server.Received, f.Client.Received)
	}
	n.Run(time.Second)
	for _, x := range []struct{ at, other *End }{{f.Client, f.Server}, {f.Server, f.Client}} {
		i, peer, want := x.at.Conn.Info(), x.other.Conn.Info(), arrived[x.at.host.Addr]
		if uint64(i.CE) != want.packets || i.CE < 50 || peer.DeliveredCE != i.CE {
			t.Errorf("%d packets arrived marked; counted are %d, known to the peer %d", want.packets, i.CE, peer.DeliveredCE)
		}
		for _, mark := range []wire.ECN{wire.ECT0, wire.ECT1, wire.CE} {
			if uint64(i.ReceivedByECN[mark]) != want.bytes[mark] || peer.DeliveredByECN[mark] != i.ReceivedByECN[mark] {
				t.Errorf("%d bytes arrived as %v; counted are %d, known to the peer %d", want.bytes[mark], mark, i.ReceivedByECN[mark], peer.DeliveredByECN[mark])
			}
		}
		if i.Retransmits != 0 {
			t.Errorf("%d retransmissions without loss", i.Retransmits)
		}
	}
	for _, x := range m.Faults {
		t.Error(x)
	}
}
