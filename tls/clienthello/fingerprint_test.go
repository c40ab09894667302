package clienthello

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/capture"
)

// vectors returns hellos that programs sent to us, with JA3 as tshark 4.0.17 computes it and JA4 as
// ja4plus 1.4.0 does.
func vectors(t testing.TB) (all []vector) {
	t.Helper()
	b, err := os.ReadFile("testdata/hellos.json")
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil || len(all) < 15 {
		t.Fatalf("%d vectors, %v", len(all), err)
	}
	for i := range all {
		if all[i].raw, err = hex.DecodeString(all[i].Hello); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

type vector struct {
	Client, Hello, JA3, JA4 string
	raw                     []byte
}

func TestFingerprintsAreThoseOfOtherPrograms(t *testing.T) {
	for _, v := range vectors(t) {
		var p Peeker
		h, err := p.Parse(v.raw)
		if err != nil {
			t.Errorf("%s: %v", v.Client, err)
			continue
		}
		if h.JA3() != v.JA3 || h.JA4() != v.JA4 {
			t.Errorf("%s: %s %s, want %s %s", v.Client, h.JA3(), h.JA4(), v.JA3, v.JA4)
		}
		// The same from lists, which have values of GREASE that are left out.
		f := features(h)
		if ja3, ja4 := string(f.AppendJA3(nil)), string(f.AppendJA4(nil, 't')); ja3 != v.JA3 || ja4 != v.JA4 {
			t.Errorf("%s, from features: %s %s", v.Client, ja3, ja4)
		}
	}
}

// features returns the lists of a hello as they are, GREASE included.
func features(h *Hello) Features {
	all := func(l List16) (s []uint16) {
		for i := range l.Len() {
			s = append(s, l.At(i))
		}
		return s
	}
	f := Features{
		Version: h.Version, MaxVersion: h.MaxVersion(), HasServerName: h.HasServerName, Suites: all(h.Suites),
		Groups: all(h.Groups), Signatures: all(h.Signatures), PointFormats: h.PointFormats,
	}
	f.FirstALPN, _ = h.ALPN.Next()
	for e := h.extensions; len(e) > 0; e = e[4+binary.BigEndian.Uint16(e[2:]):] {
		f.Extensions = append(f.Extensions, binary.BigEndian.Uint16(e))
	}
	return f
}

func TestJA4OfWhatIsRare(t *testing.T) {
	suites := make([]uint16, 120)
	for i := range suites {
		suites[i] = uint16(0x100 + i)
	}
	for want, h := range map[string][]byte{
		"t13i010100": message([]uint16{1}, ext(extSupportedVersions, 4, 3, 4, 0xfa, 0xfa)), // GREASE is no version
		"t00i010100": message([]uint16{1}, ext(extSupportedVersions, 2, 0x7f, 0x1c)),       // a draft
		"t12i990000": message(suites),
		"t12i020000": message([]uint16{0x1a2a, 0x0a1b, 0x5a5a}), // one of the three is GREASE
		"t12i0101aa": message([]uint16{1}, alpn("a")),
		"t12i01016b": message([]uint16{1}, alpn("h\xab")), // hex 68ab
		"t12i0101ad": message([]uint16{1}, alpn("\xab\xcd")),
		"t12d010100": message([]uint16{1, 0x1a1a}, ext(extServerName, 0, 4, 9, 0, 1, 0), ext(0x2a2a)),
	} {
		var hello Hello
		if err := ParseMessage(h, &hello); err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if got := hello.JA4(); !strings.HasPrefix(got, want+"_") || len(got) != 36 {
			t.Errorf("%s, want %s", got, want)
		}
	}
	var hello Hello
	_ = ParseMessage(message([]uint16{0x1a1a}), &hello)
	if got := string(hello.AppendJA4(nil, 'q')); got != "q12i000000_000000000000_000000000000" {
		t.Error(got)
	}
}

// TestTsharkReadsTheSame sends hellos of many shapes through tshark.
func TestTsharkReadsTheSame(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		if os.Getenv("MILLRACE_MUST_NETNS") != "" {
			t.Fatalf("no tshark: %v (make deps)", err)
		}
		t.Skipf("no tshark: %v (make deps)", err)
	}
	var hellos [][]byte
	for _, max := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
		for _, protos := range [][]string{nil, {"h2"}, {"http/1.1", "h2", "x"}} {
			for _, name := range []string{"", "A.Example", strings.Repeat("long.", 40) + "example"} {
				hellos = append(hellos, stream(t, &tls.Config{
					MinVersion: tls.VersionTLS10, MaxVersion: max, ServerName: name, NextProtos: protos, InsecureSkipVerify: true,
					CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}[len(protos)%2:],
				}))
			}
		}
	}
	path := filepath.Join(t.TempDir(), "hellos.pcap")
	writeCapture(t, path, hellos)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, tshark, "-r", path, "-T", "fields", "-E", "separator=;", "-e", "tls.handshake.ja3",
		"-e", "tls.handshake.extensions_server_name", "-e", "tls.handshake.extensions_alpn_str").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(hellos) {
		t.Fatalf("%d lines of %d hellos", len(lines), len(hellos))
	}
	for i, raw := range hellos {
		var p Peeker
		h, err := p.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for l := h.ALPN; len(l) > 0; {
			var n []byte
			n, l = l.Next()
			names = append(names, string(n))
		}
		if got := h.JA3() + ";" + string(h.ServerName) + ";" + strings.Join(names, ","); got != strings.ToLower(lines[i]) {
			t.Errorf("%s, tshark has %s", got, lines[i])
		}
	}
	if slices.Max(lines) == slices.Min(lines) {
		t.Error("tshark prints the same for all")
	}
}

// writeCapture writes streams as one TCP segment each, in raw IPv4 packets.
func writeCapture(t *testing.T, path string, streams [][]byte) {
	t.Helper()
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: linkRaw}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range streams {
		p := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2}
		binary.BigEndian.PutUint16(p[2:], uint16(40+len(s)))
		p = binary.BigEndian.AppendUint16(p, uint16(10000+i))
		p = append(p, 1, 187, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0) // to 443, PSH and ACK
		p = append(p, s...)
		if err := w.Write(&capture.Record{Data: p, Len: len(p), Time: int64(i) * 1e9}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

const linkRaw capture.LinkType = 101
