package clienthello

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/capture"
)

// TestHellosOfCaptures compares fingerprints and server names with what nDPI found in the captures of
// MILLRACE_PCAPS: one line for each flow, in expected/NAME.out. Some of its marks are not those of the
// specification, which ja4plus follows: d and i say whether it knows a domain, from wherever, and not whether there is a
// server_name; a list of one ALPN has other characters; and of no extensions it has the hash of nothing.
func TestHellosOfCaptures(t *testing.T) {
	dir := os.Getenv("MILLRACE_PCAPS")
	if dir == "" {
		t.Skip("MILLRACE_PCAPS names no folder of captures")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.pcap*"))
	flows, agree := 0, 0
	for _, path := range files {
		f, a := compareCapture(t, path, filepath.Join(dir, "expected", filepath.Base(path)+".out"))
		flows, agree = flows+f, agree+a
	}
	t.Logf("%d of %d flows agree", agree, flows)
	if flows == 0 || agree != flows {
		t.Errorf("%d of %d flows agree", agree, flows)
	}
}

var (
	flowLine = regexp.MustCompile(`TCP \[?([0-9a-f.:]+?)\]?:(\d+) <-> \[?([0-9a-f.:]+?)\]?:(\d+) `)
	ja4Field = regexp.MustCompile(`\[JA4: (t[^\]]+)\]`)
	ja3Field = regexp.MustCompile(`\[JA3C: ([^\]]+)\]`)
	sniField = regexp.MustCompile(`\[Hostname/SNI: ([^\]]+)\]`)
)

func compareCapture(t *testing.T, path, expected string) (flows, agree int) {
	want := map[string]string{} // line by flow
	f, err := os.Open(expected)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := flowLine.FindStringSubmatch(lines.Text()); m != nil && ja4Field.MatchString(lines.Text()) {
			want[m[1]+" "+m[2]+" "+m[3]+" "+m[4]] = lines.Text()
		}
	}
	if len(want) == 0 {
		return 0, 0
	}
	for flow, b := range clientStreams(t, path) {
		line, ok := want[flow]
		if !ok {
			continue
		}
		var p Peeker
		h, err := p.Parse(b)
		if err != nil {
			if errors.Is(err, ErrIncomplete) || errors.Is(err, ErrNotTLS) || err == error(errMessageType) {
				continue // cut, STARTTLS, or the server's side
			}
			t.Errorf("%s: %s: %v", filepath.Base(path), flow, err)
			continue
		}
		flows++
		ja4, ja3 := ja4Field.FindStringSubmatch(line)[1], ""
		if m := ja3Field.FindStringSubmatch(line); m != nil {
			ja3 = m[1]
		}
		ours := h.JA4()
		if _, err := netip.ParseAddr(string(h.ServerName)); err == nil || !h.HasServerName {
			ja4 = ja4[:3] + ours[3:4] + ja4[4:]
		}
		if len(h.extensions) == 0 {
			ja4 = ja4[:24] + noHash
		}
		if _, more := h.ALPN.Next(); len(more) == 0 && len(h.ALPN) > 0 {
			ja4 = ja4[:9] + ours[9:10] + ja4[10:]
		}
		sni := ""
		if m := sniField.FindStringSubmatch(line); m != nil {
			sni = m[1]
		}
		if ours != ja4 || ja3 != "" && h.JA3() != ja3 || len(h.ServerName) > 0 && sni != "" && !strings.EqualFold(sni, string(h.ServerName)) {
			t.Logf("%s: %s: %s %s %q, want %s %s %q", filepath.Base(path), flow, ours, h.JA3(), h.ServerName, ja4, ja3, sni)
			continue
		}
		agree++
	}
	return flows, agree
}

// clientStreams returns the first bytes of each direction of each connection, by "source port
// destination port". Segments of a direction are put in their order; a gap ends it.
func clientStreams(t *testing.T, path string) map[string][]byte {
	r, err := capture.Open(path)
	if err != nil {
		return nil
	}
	defer r.Close()
	segments := map[string]map[uint32][]byte{} // by flow and sequence number
	first := map[string]uint32{}
	for {
		rec, err := r.Next()
		if err != nil {
			break // the end, or damage
		}
		p := gopacket.NewPacket(rec.Data, layers.LinkType(rec.LinkType), gopacket.Default)
		tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || p.NetworkLayer() == nil {
			continue
		}
		n := p.NetworkLayer().NetworkFlow()
		flow := fmt.Sprintf("%s %d %s %d", n.Src(), tcp.SrcPort, n.Dst(), tcp.DstPort)
		if tcp.SYN {
			first[flow], segments[flow] = tcp.Seq+1, nil // ports may be used again: the last one counts
		}
		if len(tcp.Payload) == 0 {
			continue
		}
		if _, ok := first[flow]; !ok {
			first[flow] = tcp.Seq
		}
		if segments[flow] == nil {
			segments[flow] = map[uint32][]byte{}
		}
		if len(segments[flow][tcp.Seq]) < len(tcp.Payload) && tcp.Seq-first[flow] < DefaultLimit {
			segments[flow][tcp.Seq] = bytes.Clone(tcp.Payload)
		}
	}
	streams := map[string][]byte{}
	for flow, s := range segments {
		var b []byte
		for next := s[first[flow]]; next != nil; next = s[first[flow]+uint32(len(b))] {
			b = append(b, next...)
		}
		streams[flow] = b
	}
	return streams
}
