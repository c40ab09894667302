package replay

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/wire"
)

// oddFrames are IP packets behind headers that the packet path of live traffic does not read, and with lengths of 0.
func oddFrames() [][]byte {
	a, b := netip.MustParseAddrPort("198.18.0.1:1000"), netip.MustParseAddrPort("192.0.2.1:80")
	c, d := netip.MustParseAddrPort("[2001:db8::1]:1000"), netip.MustParseAddrPort("[2001:db8::2]:443")
	web := v4(wire.ProtoTCP, a, b, 0, nil, append(segment(wire.ProtoTCP, a, b, 100), "needle"...))
	web6 := v6(wire.ProtoTCP, c, d, segment(wire.ProtoTCP, c, d, 100))
	noLength := slices.Clone(web)
	noLength[2], noLength[3] = 0, 0
	be.PutUint16(noLength[10:], 0)
	be.PutUint16(noLength[10:], wire.Fold(wire.SumPlain(noLength[:20], 0)))
	noLength6 := slices.Clone(web6)
	noLength6[4], noLength6[5] = 0, 0
	snap := append([]byte{0xAA, 0xAA, 3, 0, 0, 0, 8, 0}, web...)
	return [][]byte{
		ether(wire.EtherTypeIPv4, web, 0x9100),
		ether(wire.EtherTypeIPv6, web6, wire.EtherTypeVLAN, wire.EtherTypeVLAN, wire.EtherTypeVLAN),
		ether(uint16(len(snap)), snap),
		ether(uint16(3+len(web)), append([]byte{6, 6, 3}, web...)),
		ether(wire.EtherTypePPPoE, append([]byte{0x11, 0, 0, 1, 0, byte(1 + len(web)), 0x21}, web...), wire.EtherTypeVLAN),
		ether(wire.EtherTypeIPv4, noLength),
		ether(wire.EtherTypeIPv4, noLength, wire.EtherTypeQinQ, wire.EtherTypeVLAN, 0x9100),
		ether(wire.EtherTypeIPv6, noLength6, wire.EtherTypeVLAN),
		ether(wire.EtherTypeARP, make([]byte, 28)),
		ether(wire.EtherTypeIPv4, web),
	}
}

func TestPacketsBehindOddHeadersCountAsIP(t *testing.T) {
	frames := oddFrames()
	path, save := record(t, frames), filepath.Join(t.TempDir(), "saved.pcap")
	rules, err := filter.Parse("r", "drop tcp from any to any port 443\n")
	if err != nil {
		t.Fatal(err)
	}
	patterns, err := filter.ParsePatterns("p", "\"needle\"\n")
	if err != nil {
		t.Fatal(err)
	}
	var found []PatternMatch
	rep, err := Run(context.Background(), Config{
		Files: []string{path}, Rules: rules, Patterns: patterns, Save: save,
		OnMatch: func(m PatternMatch) { found = append(found, m) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := rep.Total
	if s.IPv4 != 7 || s.IPv6 != 2 || s.Malformed+s.Truncated+s.IPChecksumErrors != 0 || s.VLAN != 5 || s.Flows != 2 || s.Dropped["rule"] != 2 {
		t.Errorf("%+v", s.Sum)
	}
	var ends []int
	for _, m := range found {
		if want := len(frames[m.Packet-1]); int(m.End) != want {
			t.Errorf("packet %d: to byte %d, want %d", m.Packet, m.End, want)
		}
		ends = append(ends, int(m.Packet))
	}
	if want := []int{1, 3, 4, 5, 6, 7, 10}; !slices.Equal(ends, want) {
		t.Errorf("matches in packets %v, want %v", ends, want)
	}
	saved := readFrames(t, save)
	want := slices.Delete(slices.Clone(frames), 7, 8)
	want = slices.Delete(want, 1, 2)
	for i := range want {
		f := slices.Clone(want[i])
		capture.FillLength(be.Uint16(f[12:]), f[14:], len(f)-14)
		if i >= len(saved) || !slices.Equal(saved[i], f) {
			t.Errorf("packet %d was written with other bytes", i)
		}
	}
	v, err := Verify(context.Background(), Config{Files: []string{path}, Rules: rules, Patterns: patterns})
	if err != nil || v.Count != 0 || v.Decoded != 9 {
		t.Errorf("%+v, %v", v, err)
	}
}

// Several laps of resident packets are in one batch: their bytes stay, and what would have to change does not count as IP.
func TestResidentPacketsAreNotWrittenTo(t *testing.T) {
	rep, err := Run(context.Background(), Config{Files: []string{record(t, oddFrames())}, Laps: 300})
	if err != nil || rep.Files[0].Mode != "resident" {
		t.Fatal(err, rep.Files[0].Mode)
	}
	if s := rep.Total; s.IPv4 != 5*300 || s.IPv6 != 2*300 || s.VLAN != 5*300 || s.Malformed != 0 {
		t.Errorf("%+v", s.Sum)
	}
}

func TestOddHeadersAreSentAsTheyAre(t *testing.T) {
	arena, pool, err := newPool(512)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	path := filepath.Join(t.TempDir(), "sent.pcap")
	out, err := pcap.Open(pool, pcap.Config{Out: path})
	if err != nil {
		t.Fatal(err)
	}
	frames := oddFrames()
	if _, err := Run(context.Background(), Config{Files: []string{record(t, frames)}, Out: out, Pool: pool}); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	sent := readFrames(t, path)
	if len(sent) != len(frames) {
		t.Fatalf("%d packets of %d", len(sent), len(frames))
	}
	for i := range 5 {
		if !slices.Equal(sent[i], frames[i]) {
			t.Errorf("packet %d has other bytes", i)
		}
	}
}

func readFrames(t *testing.T, path string) (all [][]byte) {
	t.Helper()
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for rec, err := r.Next(); err == nil; rec, err = r.Next() {
		all = append(all, slices.Clone(rec.Data))
	}
	return all
}
