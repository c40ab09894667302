package inspect

import (
	"hash/maphash"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gpukern"
	batch "github.com/millrace/millrace/packet"
)

// layersByFrame returns the layers that the header pass finds in each frame.
func layersByFrame(t testing.TB, list []timedFrame) (layers []Layers) {
	t.Helper()
	pe := gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse})
	defer pe.Close()
	throughEngine(t, pe, list, func(_ timedFrame, b *batch.Batch, i int) { layers = append(layers, LayersOf(&b.D[i])) })
	return layers
}

// TestLayersChangeNothing inspects all captures with the header pass's layers and with numbers of connections, of which many
// share a place and some are of other flows, and compares with an engine that parses each frame and hashes each key.
func TestLayersChangeNothing(t *testing.T) {
	keyDecides(t) // without, the engine does not return
	list, rules := capturedFrames(t), searchRules(t)
	layers := layersByFrame(t, list)
	run := func(input func(i int) Input) (alerts []string, stats Stats) {
		e := New(rules, Config{}, func(a *Alert) { alerts = append(alerts, alertText(a)) })
		for i, p := range list {
			in := input(i)
			in.Now, in.Frame = p.at, p.frame
			e.Inspect(&in)
		}
		e.Flush()
		return alerts, e.Stats()
	}
	seed, known := maphash.MakeSeed(), 0
	plain, want := run(func(int) Input { return Input{} })
	fast, got := run(func(i int) Input {
		l := layers[i]
		if !l.known(len(list[i].frame)) {
			return Input{Layers: l}
		}
		known++
		ends := list[i].frame[l.L3 : l.L4+min(4, len(list[i].frame)-l.L4)]
		return Input{Layers: l, Conn: 1 + uint32(maphash.Bytes(seed, ends)%3)*recentFlows + uint32(i%5)}
	})
	if diff := cmp.Diff(plain, fast); diff != "" {
		t.Errorf("alerts differ:\n%s", diff)
	}
	if got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
	if 10*known < 8*len(list) || len(plain) < 100 {
		t.Errorf("%d of %d frames have layers, %d alerts", known, len(list), len(plain))
	}
}

// keyDecides fails the test where the number of a connection alone leads to a flow. Packets of one flow then reach another, whose
// lists become rings without an end: the engine would not return.
func keyDecides(t *testing.T) {
	t.Helper()
	e := New(searchRules(t), Config{}, func(*Alert) {})
	e.in = Input{Conn: 7}
	e.flowOf(&packet{proto: 17, srcPort: 1, dstPort: 2})
	other := &packet{proto: 17, srcPort: 3, dstPort: 4}
	k, _ := keyOf(other)
	if f := e.recentFlow(other, &k); f != nil {
		t.Fatal("a packet with the connection's number and another key gets its flow")
	}
}

// TestTheFlowOfAConnectionIsFound holds the shortcut to its purpose: the second packet of a connection costs no search, and a
// flow that has ended is forgotten.
func TestTheFlowOfAConnectionIsFound(t *testing.T) {
	keyDecides(t)
	e := New(searchRules(t), Config{}, func(*Alert) {})
	p := &packet{proto: 17, srcPort: 1, dstPort: 2}
	e.in = Input{Conn: 7}
	k, _ := keyOf(p)
	if f := e.recentFlow(p, &k); f != nil {
		t.Fatalf("a flow before the first packet: %+v", f)
	}
	f := e.flowOf(p)
	if e.recentFlow(p, &k) != f {
		t.Error("the flow of connection 7 is not found")
	}
	if inner := (&packet{proto: 17, srcPort: 1, dstPort: 2, depth: 1}); e.recentFlow(inner, &k) != nil {
		t.Error("a packet in a tunnel takes the flow of the outer connection")
	}
	e.end(f)
	if e.recentFlow(p, &k) != nil || e.recent[7] != nil {
		t.Error("a flow that has ended is remembered")
	}
}
