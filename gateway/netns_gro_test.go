package gateway_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testnet"
)

// The gateway joins wire-sized segments, and the devices that it sends by cut them again: tshark finds every length and checksum
// of what the client gets right, and no segment is longer than the backend's.
func TestJoinedSegmentsLeaveAsTheyCame(t *testing.T) {
	testnet.Program(t, "tcpdump", "tshark")
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := newSite(t, "mr-gwgro", driver)
			s.must(s.client.Sysctl("net.ipv4.tcp_ecn", "1"))
			for _, b := range s.backends {
				s.must(b.Sysctl("net.ipv4.tcp_ecn", "1"))
			}
			file := filepath.Join(t.TempDir(), "client.pcap")
			dump := exec.Command("tcpdump", "-Z", "root", "-U", "-n", "-i", "eth0", "-Q", "in", "-c", "4000", "-w", file, "tcp")
			var said testnet.Log
			dump.Stderr = &said
			s.must(s.client.Start(dump))
			t.Cleanup(func() { dump.Process.Kill() })
			for end := time.Now().Add(10 * time.Second); !strings.Contains(said.String(), "listening on"); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal(said.String())
				}
			}
			const size = 64 << 20
			s.bulk(size)
			s.must(dump.Wait())
			if sum := s.stop(); sum.Merged < size/1448/2 {
				t.Errorf("%d of some %d segments were joined to another", sum.Merged, size/1448)
			}
			found := func(filter string) int {
				out, err := exec.Command("tshark", "-n", "-r", file, "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-Y", filter).Output()
				s.must(err)
				return strings.Count(string(out), "\n")
			}
			if n := found("tcp.checksum.status==1 && ip.checksum.status==1 && ip.dsfield.ecn==2 && tcp.len==1448"); n < 3000 {
				t.Errorf("%d of 4000 packets are whole segments of the backend with right checksums", n)
			}
			if n := found("tcp.checksum.status==0 || ip.checksum.status==0 || tcp.len>1448 || _ws.malformed"); n > 0 {
				t.Errorf("tshark finds %d bad packets", n)
			}
		})
	}
}
