package appid

import "testing"

// No recogniser allocates, whether it knows a payload or not.
func TestRecognisersDoNotAllocate(t *testing.T) {
	for i := range specified {
		e := &specified[i].example
		if named(e.protocol) { // has details
			continue
		}
		packets := make([]Packet, 0, len(e.payloads))
		for _, s := range e.payloads {
			packets = append(packets, Packet{Transport: e.transport, Source: 40000, Destination: e.port, Payload: []byte(s)})
		}
		var f Flow
		if n := testing.AllocsPerRun(10, func() {
			f = Flow{}
			for j := range packets {
				f.Packet(&packets[j])
			}
		}); n != 0 {
			t.Errorf("%v over %d: %v allocations", e.protocol, e.transport, n)
		}
	}
}

// BenchmarkRecorded is the cost of a packet of the captures in testdata, from the first of a flow until it is done.
func BenchmarkRecorded(b *testing.B) {
	all := recordings(b)
	packets := 0
	for range b.N {
		for _, r := range all {
			r.play(0, whole, 0)
			packets += len(r.packets)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
}
