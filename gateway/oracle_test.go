package gateway

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tsharkAgrees has tshark look at packets: every header of every packet, the inner ones too, has a right
// checksum where it has one at all, and no length contradicts another.
func tsharkAgrees(t testing.TB, packets [][]byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "out.pcap")
	writePcap(t, file, packets)
	if n := TsharkReads(t, file); n != len(packets) {
		t.Errorf("tshark read %d of %d packets", n, len(packets))
	}
}

// TsharkReads is tsharkAgrees for the packets of a capture file; it returns how many there are.
func TsharkReads(t testing.TB, file string) int {
	t.Helper()
	layers := []string{"ip", "tcp", "udp", "icmp", "icmpv6"}
	args := []string{
		"-n", "-r", file, "-X", "lua_script:testdata/gue.lua", "--disable-protocol", "dns", "--disable-protocol", "http",
		"-o", "tcp.desegment_tcp_streams:FALSE", "-o", "tcp.analyze_sequence_numbers:FALSE", // each packet alone
		"-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-T", "fields", "-E", "separator=;", "-e", "frame.protocols", "-e", "_ws.expert.message",
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
			if got, want := f[2+j], goods(protocols, l); got != want && !(cut(protocols, l) && strings.HasPrefix(got, want)) {
				t.Errorf("packet %d, %s: checksums of %s are %q, want %q (1 good, 0 bad, 2 unverified, 3 none)", i+1, f[0], l, got, want)
			}
		}
		for _, bad := range []string{"alformed", "length", "Bogus", "Lua"} {
			if strings.Contains(f[1], bad) && !slices.ContainsFunc(protocols, application) {
				t.Errorf("packet %d, %s: %s", i+1, f[0], f[1])
			}
		}
	}
	return len(lines)
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
