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

func TestEveryCaptureCountsAsTsharkCountsIt(t *testing.T) {
	needTshark(t)
	if os.Getenv(testpcaps.Corpus) == "" {
		t.Skip(testpcaps.Corpus + " names a folder of captures to count")
	}
	for _, path := range testpcaps.Files(t) {
		compareWithTshark(t, path)
	}
}
