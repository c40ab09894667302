package replay

import (
	"context"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// BenchmarkCapturesInMemory replays the sample captures as `millrace replay --loop` does, and tells
// what a packet costs, all operations and all counting included.
func BenchmarkCapturesInMemory(b *testing.B) {
	files := testpcaps.Files(b)
	var total Part
	for b.Loop() {
		rep, err := Run(context.Background(), Config{Files: files, Laps: 200})
		if err != nil {
			b.Fatal(err)
		}
		total = rep.Total
	}
	b.ReportMetric(total.NsPacket, "ns/packet")
	b.ReportMetric(total.EngineNs, "engine-ns/packet")
}
