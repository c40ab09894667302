package replay

import (
	"context"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/wire"
)

// timedCapture writes a capture of n packets to some ports in turn, a millisecond apart.
func timedCapture(t *testing.T, n int, ports ...uint16) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "timed.pcapng")
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		t.Fatal(err)
	}
	from := netip.MustParseAddrPort("198.18.0.1:1000")
	for i := range n {
		to := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), ports[i%len(ports)])
		p := ether(wire.EtherTypeIPv4, v4(wire.ProtoUDP, from, to, 0, nil, segment(wire.ProtoUDP, from, to, 10)))
		if err := w.Write(&capture.Record{Data: p, Len: len(p), Time: 1_700_000_000_000_000_000 + int64(i)*1_000_000}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestActionsInReplay has a rate in the time of the capture, however fast it is replayed, and a capture of what a rule
// asks for.
func TestActionsInReplay(t *testing.T) {
	path := timedCapture(t, 3000, 53, 80, 443)
	rules, err := filter.Parse("r", "rate 100pps burst 20 to any port 53\ndeny capture to any port 80\nredirect eth9 mark 3 to any port 443")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "captured.pcap")
	rep, err := Run(context.Background(), Config{Files: []string{path}, Rules: rules, Capture: out})
	if err != nil {
		t.Fatal(err)
	}
	const within = 20 + 299 // the burst, and 2.997 s of the rate
	if diff := cmp.Diff(map[string]uint64{"rule": 1000, "rate_limit": 1000 - within}, rep.Total.Dropped); diff != "" {
		t.Error(diff)
	}
	if rep.Total.Passed != 1000+within {
		t.Errorf("%d pass", rep.Total.Passed)
	}
	if r := rep.Rules[0]; r.Packets != 1000 || r.Over != 1000-within || r.File != "r" {
		t.Errorf("%+v", r)
	}
	if got := records(t, out); rep.Captured.Packets != 1000 || len(got) != 1000 || rep.Saved != nil {
		t.Errorf("%+v, %d records", rep.Captured, len(got))
	}
}
