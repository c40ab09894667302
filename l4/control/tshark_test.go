package control

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// tshark checks every length and checksum of what the gateway sends: both directions, both address
// families, both protocols, and the answers to ARP and neighbour solicitations.
func TestTsharkFindsNothingWrong(t *testing.T) {
	testnet.Program(t, "tshark")
	w := newWorld(t, fill(""))
	var out [][]byte
	for _, c := range [][3]string{
		{"198.18.0.9:40000", "198.18.1.1:80", "S"},
		{"[2001:db8::9]:40000", "[2001:db8:1::1]:80", "S"},
		{"198.18.0.9:40000", "198.18.1.1:53", ""},
		{"[2001:db8::9]:40000", "[2001:db8:1::1]:53", ""},
	} {
		there := w.expect(0, client(c[0], c[1], c[2]).bytes(), 1)
		flags := map[string]string{"S": "SA", "": ""}[c[2]]
		out = append(out, there, w.expect(1, answer(there, flags).bytes(), 0))
	}
	out = append(out, w.expect(0, arpFor("198.18.1.1", 1), 0),
		w.expect(0, solicit("2001:db8::9", "ff02::1:ff00:1", "2001:db8:1::1", true, 255), 0))

	file := filepath.Join(t.TempDir(), "out.pcap")
	writePcap(t, file, out)
	fields := []string{"frame.number", "ip.checksum.status", "tcp.checksum.status", "udp.checksum.status", "icmpv6.checksum.status", "arp.opcode"}
	args := []string{"-n", "-r", file, "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields", "-E", "separator=,"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	got, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	// IP, TCP, UDP, ICMPv6: 1 is a good checksum, 0 a bad one, 2 unverified
	want := strings.Join([]string{
		"1,1,1,,,", "2,1,1,,,", "3,,1,,,", "4,,1,,,", "5,1,,1,,", "6,1,,1,,", "7,,,1,,", "8,,,1,,",
		"9,,,,,2", "10,,,,1,", "",
	}, "\n")
	if string(got) != want {
		t.Errorf("%v\ngot\n%s\nwant\n%s", fields, got, want)
	}
}

func writePcap(t testing.TB, file string, pkts [][]byte) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pw := pcapgo.NewWriter(f)
	if err := pw.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for _, p := range pkts {
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(0, 0), CaptureLength: len(p), Length: len(p)}
		if err := pw.WritePacket(ci, p); err != nil {
			t.Fatal(err)
		}
	}
}
