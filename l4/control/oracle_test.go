package control

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
)

// tsharkAgrees has tshark look at packets: every header of every packet, the inner ones too, has a right
// checksum where it has one at all, and no length contradicts another.
func tsharkAgrees(t testing.TB, packets [][]byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "out.pcap")
	writePcap(t, file, packets)
	n, faults := tsharkFaults(t, file, false)
	for _, f := range faults {
		t.Error(f)
	}
	if n != len(packets) {
		t.Errorf("tshark read %d of %d packets", n, len(packets))
	}
}

// TsharkReads is tsharkAgrees for the packets of a capture file, of which kernels have sent some; it returns how many there
// are.
func TsharkReads(t testing.TB, file string) int {
	t.Helper()
	n, faults := tsharkFaults(t, file, true)
	for _, f := range faults {
		t.Errorf("%s: %s", filepath.Base(file), f)
	}
	return n
}

// tsharkFaults returns how many packets a file has, and what tshark finds wrong with them. See negativeZeros for kernels.
func tsharkFaults(t testing.TB, file string, kernels bool) (packets int, faults []string) {
	t.Helper()
	layers := []string{"ip", "tcp", "udp", "icmp", "icmpv6"}
	args := []string{
		"-n", "-r", file, "-X", "lua_script:testdata/gue.lua", "--disable-protocol", "dns", "--disable-protocol", "http",
		"-d", "udp.port==32768-60999,data", "-d", "tcp.port==32768-60999,data", // clients' ports: some are those of protocols
		"-o", "tcp.desegment_tcp_streams:FALSE", "-o", "tcp.analyze_sequence_numbers:FALSE", // each packet alone
		"-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-T", "fields", "-E", "separator=;", "-e", "frame.protocols", "-e", "_ws.expert.message", "-e", "tcp.checksum", "-e", "tcp.checksum_calculated",
	}
	for _, l := range layers {
		args = append(args, "-e", l+".checksum.status")
	}
	cmd := exec.Command("tshark", args...)
	var why bytes.Buffer
	cmd.Stderr = &why
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &why)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	for i, line := range lines {
		f := strings.Split(line, ";")
		protocols := strings.Split(f[0], ":")
		for j, l := range layers {
			got, want := f[4+j], goods(protocols, l)
			if kernels && l == "tcp" {
				got = negativeZeros(got, f[2], f[3])
			}
			if got != want && !(cut(protocols, l) && strings.HasPrefix(got, want)) {
				faults = append(faults, fmt.Sprintf("packet %d, %s: checksums of %s are %q, want %q (1 good, 0 bad, 2 unverified, 3 none); TCP has %s, calculated %s",
					i+1, f[0], l, got, want, f[2], f[3]))
			}
		}
		for _, bad := range []string{"alformed", "length", "Bogus", "Lua"} {
			if strings.Contains(f[1], bad) && !slices.ContainsFunc(protocols, application) {
				faults = append(faults, fmt.Sprintf("packet %d, %s: %s", i+1, f[0], f[1]))
			}
		}
	}
	return len(lines), faults
}

// negativeZeros returns tshark's findings about TCP checksums with those counted as good that are 0xffff where 0 was calculated.
// Both are zero in ones' complement arithmetic, so every receiver takes either (RFC 1071 2, RFC 1624 3), but tshark does not.
// Linux sends 0xffff: skb_checksum_help writes it for every protocol, as UDP needs it, into one in 65535 segments whose
// checksum it makes. The gateway sends 0.
func negativeZeros(status, checksums, calculated string) string {
	statuses, has, want := strings.Split(status, ","), strings.Split(checksums, ","), strings.Split(calculated, ",")
	for i, s := range statuses {
		if s != "0" && s != "1" || i >= len(has) || len(want) == 0 {
			continue // not verified, so not calculated either
		}
		if has[i] == "0xffff" && want[0] == "0x0000" {
			statuses[i] = "1"
		}
		want = want[1:]
	}
	return strings.Join(statuses, ",")
}

// application reports whether tshark took payload for the protocol, by a port that a client had by chance:
// what it says of that is nothing to us.
func application(protocol string) bool {
	return !slices.Contains(strings.Fields("eth ethertype vlan arp ip ipv6 ipv6.fraghdr tcp udp icmp icmpv6 gue data"), protocol)
}

// cut reports whether a header of the protocol may be quoted by an ICMP error, with the start of its data only.
func cut(protocols []string, name string) bool {
	return (name == "tcp" || name == "udp") && (slices.Contains(protocols, "icmp") || slices.Contains(protocols, "icmpv6"))
}

// goods is what tshark says of a protocol's checksums when all are right, but for those that a quote cuts off.
func goods(protocols []string, name string) string {
	var list []string
	for _, p := range protocols {
		if p == name {
			list = append(list, "1")
		}
		if (p == "icmp" || p == "icmpv6") && cut(protocols, name) {
			break
		}
	}
	return strings.Join(list, ",")
}

// A kernel may send 0xffff for a TCP checksum of zero, and the gateway may not. Any other number is wrong from both.
func TestTsharkIsRightAboutZeros(t *testing.T) {
	testnet.Program(t, "tshark")
	zero := func(checksum uint16) []byte {
		for port := range 1 << 16 {
			p := client(fmt.Sprintf("198.18.0.9:%d", port), "198.18.1.1:80", "A").bytes()
			if at := 14 + 20 + 16; binary.BigEndian.Uint16(p[at:]) == 0 {
				binary.BigEndian.PutUint16(p[at:], checksum)
				return p
			}
		}
		t.Fatal("no port makes the checksum zero")
		return nil
	}
	good := client("198.18.0.9:40000", "198.18.1.1:80", "A").bytes()
	bad := bytes.Clone(good)
	binary.BigEndian.PutUint16(bad[50:], 0xffff)
	file := filepath.Join(t.TempDir(), "zeros.pcap")
	writePcap(t, file, [][]byte{good, zero(0), zero(0xffff), zero(1), bad})
	for _, c := range []struct {
		kernels bool
		wrong   []int
	}{{true, []int{4, 5}}, {false, []int{3, 4, 5}}} {
		n, faults := tsharkFaults(t, file, c.kernels)
		var wrong []int
		for _, f := range faults {
			var i int
			fmt.Sscanf(f, "packet %d", &i)
			wrong = append(wrong, i)
		}
		if n != 5 || !slices.Equal(wrong, c.wrong) {
			t.Errorf("with kernels %v: of %d packets these are wrong: %q", c.kernels, n, faults)
		}
	}
}

// The gateway sends 0 where a checksum is zero, also of a segment that came with 0xffff.
func TestAGatewaySendsNoNegativeZero(t *testing.T) {
	w := newWorld(t, `
devices: [{name: gw0}, {name: gw1}]
table: {size: 65536}
services:
  - {name: web, source: client, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:81}]}
`)
	zeros := 0
	for port := 1; port < 1<<16; port++ { // every checksum once
		p := client(fmt.Sprintf("198.18.0.9:%d", port), "198.18.1.1:80", "S").bytes()
		if binary.BigEndian.Uint16(p[50:]) == 0 {
			binary.BigEndian.PutUint16(p[50:], 0xffff)
		}
		s := w.send(0, p)
		switch binary.BigEndian.Uint16(s.p[50:]) {
		case 0:
			zeros++
		case 0xffff:
			t.Fatalf("port %d: 0xffff after %x", port, p[50:52])
		}
		if s.verdict != packet.Forward {
			t.Fatal(s.verdict)
		}
		w.send(0, client(fmt.Sprintf("198.18.0.9:%d", port), "198.18.1.1:80", "R").bytes())
	}
	if zeros == 0 {
		t.Error("no checksum was zero")
	}
}
