package replay

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// totals are what tshark and a run count alike.
type totals struct{ records, ipv4, ipv6 uint64 }

// countByTshark counts the packets whose outermost network header is IP.
func countByTshark(t *testing.T, path string) (n totals) {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command("tshark", "-n", "-r", path, "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE",
		"-o", "tcp.desegment_tcp_streams:FALSE", "-T", "fields", "-e", "frame.protocols")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Logf("tshark: %v: %s", err, &errs) // of a damaged file, behind the packets before
	}
	for line := range strings.Lines(string(out)) {
		n.records++
	protocols:
		for p := range strings.SplitSeq(strings.TrimSpace(line), ":") {
			switch p {
			case "ip":
				n.ipv4++
				break protocols
			case "ipv6":
				n.ipv6++
				break protocols
			}
		}
	}
	return n
}

// compareWithTshark replays a file and compares the totals. Packets whose IP header is malformed or cut count for tshark only.
func compareWithTshark(t *testing.T, path string) totals {
	t.Helper()
	rep, err := Run(context.Background(), Config{Files: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	f, want := rep.Files[0], countByTshark(t, path)
	got := totals{f.Records.Read, f.IPv4, f.IPv6}
	if headless := f.others[0x0800] + f.others[0x86DD]; got.records != want.records ||
		got.ipv4 > want.ipv4 || got.ipv6 > want.ipv6 || got.ipv4+got.ipv6+headless < want.ipv4+want.ipv6 {
		t.Errorf("%s: %+v and %d IP packets without a whole header, tshark has %+v (%+v)", filepath.Base(path), got, headless, want, f.Records)
	}
	return got
}

func needTshark(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark counts the packets to compare with: ", err)
	}
}

func TestOddCapturesCountAsTsharkCountsThem(t *testing.T) {
	needTshark(t)
	links := []capture.Interface{
		{LinkType: capture.LinkTypeEthernet},
		{LinkType: capture.LinkTypeFrameRelay},
		{LinkType: capture.LinkTypeIPoIB},
	}
	path := filepath.Join(t.TempDir(), "odd.pcapng")
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: links})
	if err != nil {
		t.Fatal(err)
	}
	add := func(link int, data []byte) {
		if err := w.Write(&capture.Record{Interface: link, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	for _, frame := range oddFrames() {
		add(0, frame)
	}
	web := oddFrames()[9][14:]
	for _, head := range []string{
		"\x18\x41\x03\xcc", "\x18\x41\x03\x00\x80\x00\x00\x00\x08\x00", "\x18\x41\x08\x00",
		"\x18\x41\x03\x00\x80\x00\x80\xc2\x00\x07abcdefghijkl\x08\x00",
	} {
		add(1, append([]byte(head), web...))
	}
	add(2, append([]byte(strings.Repeat("\x00", 40)+"\x08\x00\x00\x00"), web...))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := compareWithTshark(t, path); got != (totals{15, 12, 2}) {
		t.Errorf("%+v", got)
	}
}

// llcFrames are frames of link types that have LLC behind their addresses, and how many of them hold IPv4 and IPv6.
func llcFrames(web []byte) map[capture.LinkType]struct {
	frames []string
	want   totals
} {
	const (
		to, from, routed = "\x02\x00\x00\x00\x00\x01", "\x02\x00\x00\x00\x00\x02", "\x82\x00\x00\x00\x00\x02"
		macs             = to + from
		snap4, snap6     = "\xaa\xaa\x03\x00\x00\x00\x08\x00", "\xaa\xaa\x03\x00\x00\x00\x86\xdd"
		bridged          = "\xaa\xaa\x03\x00\x80\xc2\x00"
	)
	v4 := string(web)
	v6 := "\x60\x00\x00\x00\x00\x00\x3b\x40" + strings.Repeat("\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01", 2)
	type files = struct {
		frames []string
		want   totals
	}
	return map[capture.LinkType]files{
		capture.LinkTypeFDDI: {[]string{
			"\x50" + macs + snap4 + v4, "\x57" + macs + snap6 + v6, "\x58" + macs + snap4 + v4, "\x50" + macs + "\x06\x06\x03" + v4,
			"\xd0" + macs + snap4 + v4, "\x41" + macs + snap4 + v4, "\x60" + macs + snap4 + v4, "\x50" + macs + "\x42\x42\x03stp!",
		}, totals{8, 3, 1}},
		capture.LinkTypeTokenRing: {[]string{
			"\x10\x40" + macs + snap4 + v4, "\x10\x40" + macs + snap6 + v6, "\x10\x40" + macs + "\x06\x06\x03" + v4,
			"\x10\x40" + to + routed + "\x06\x30\x00\x11\x00\x20" + snap4 + v4, "\x10\x40" + to + routed + "\x02\x70" + snap6 + v6,
			"\x10\x40" + to + routed + "\x00\x70" + snap4 + v4, "\x10\x40" + to + routed + snap4 + v4,
			"\x10\x40" + macs + "\x02\x70" + snap4 + v4, "\x10\x00" + macs + snap4 + v4, "\x10\x80" + macs + snap4 + v4,
		}, totals{10, 3, 2}},
		capture.LinkTypeATMRFC1483: {[]string{
			snap4 + v4, snap6 + v6, "\x06\x06\x03" + v4, "\xfe\xfe\x03\xcc" + v4, "\xfe\xfe\x03\x8e" + v6, "\xfe\xfe\x03\xcf\x00\x21" + v4,
			bridged + "\x07\x00\x00" + macs + "\x08\x00" + v4, bridged + "\x01\x00\x00" + macs + "\x08\x00" + v4 + "fcs!",
			bridged + "\x0a\x00\x00\x00\x50" + macs + snap4 + v4, bridged + "\x04\x00\x00\x00\x50" + macs + snap6 + v6 + "fcs!",
			v4, "\xfe\xfe\x03\x83isis", "\xfe\xfe\x03\x80\x00\x00\x00\x08\x00" + v4,
		}, totals{13, 7, 3}},
		capture.LinkTypeSunATM: {[]string{
			"\x02\x00\x00\x20" + snap4 + v4, "\x82\x00\x00\x20" + snap6 + v6, "\x00\x00\x00\x20" + snap4 + v4,
			"\x01\x00\x00\x20\x00\x05" + macs + "\x08\x00" + v4, "\x05\x00\x00\x10" + snap4 + v4,
		}, totals{5, 3, 1}},
	}
}

func TestEveryCaptureCountsAsTsharkCountsIt(t *testing.T) {
	needTshark(t)
	// Link types that are hardly met any more: files made by hand.
	for lt, of := range llcFrames(oddFrames()[9][14:]) {
		path := filepath.Join(t.TempDir(), "llc.pcapng")
		w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: lt}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range of.frames {
			if err := w.Write(&capture.Record{Data: []byte(p)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := compareWithTshark(t, path); got != of.want {
			t.Errorf("%v: %+v, want %+v", lt, got, of.want)
		}
	}
	if os.Getenv(testpcaps.Corpus) == "" {
		t.Skip(testpcaps.Corpus + " names a folder of captures to count")
	}
	for _, path := range testpcaps.Files(t) {
		compareWithTshark(t, path)
	}
}
