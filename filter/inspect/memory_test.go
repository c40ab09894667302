package inspect

import (
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/wire"
)

// TestMemoryBytesHoldsForTheHeap has tiny fragments and tiny pieces of streams, which cost more than their bytes.
func TestMemoryBytesHoldsForTheHeap(t *testing.T) {
	const most = 4 << 20
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for name, fill := range map[string]func(g *gate){
		"fragments": func(g *gate) {
			for id := range uint16(4000) {
				for at := range 40 {
					b := ipPacket(client, server, wire.ProtoUDP, []byte("fragment"))
					ip := wire.IPv4(b)
					ip.SetID(id)
					ip.SetMoreFragments(true)
					ip.SetFragmentOffset(16 * at)
					g.now++
					g.e.Inspect(&Input{Now: g.now, Frame: ether(wire.EtherTypeIPv4, b)})
				}
			}
		},
		"pieces": func(g *gate) {
			for port := range uint16(60) {
				other := newOther(g, 41000+port)
				for i := range 1000 {
					other(uint32(2+2*i), "x")
				}
				other(1, "x")
			}
		},
		"streams": func(g *gate) {
			for port := range uint16(60) {
				other := newOther(g, 41000+port)
				for i := range 60 {
					other(uint32(1+1400*i), strings.Repeat("y", 1400))
				}
			}
		},
	} {
		for _, refuse := range []bool{false, true} {
			g := newGate(t, Config{Refuse: refuse, MemoryBytes: most}, dropDawn)
			g.open()
			before := heap()
			fill(g)
			got := heap() - before - g.e.flows.n*2048 // of a flow itself, which MaxFlows bounds
			if used := g.e.budget.Used(); got > most || used > most || used < most/8 {
				t.Errorf("%s, refuse %v: %d bytes of heap, %d are counted, %d are the bound", name, refuse, got, used, most)
			}
			runtime.KeepAlive(g)
		}
	}
}
