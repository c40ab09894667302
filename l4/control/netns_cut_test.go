package control_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// newNarrow starts a gateway of wireConfig, with links of different MTUs to the client and to the backend. No sender sets
// Don't Fragment.
func newNarrow(t *testing.T, driver string, toClient, toBackend int) *site {
	t.Helper()
	s, _ := layOut(t, "mr-gwcut")
	s.run(s.client, fmt.Sprint("ip link set eth0 mtu ", toClient))
	s.run(s.gate, fmt.Sprint("ip link set front mtu ", toClient))
	s.run(s.gate, fmt.Sprint("ip link set back1 mtu ", toBackend))
	s.run(s.backends[0], fmt.Sprint("ip link set eth0 mtu ", toBackend))
	s.must(s.client.Sysctl("net.ipv4.ip_no_pmtu_disc", "1"))
	s.must(s.backends[0].Sysctl("net.ipv4.ip_no_pmtu_disc", "1"))
	s.must(s.backends[0].Do(func() error {
		for _, port := range []string{":5454", ":5455"} {
			p, err := net.ListenPacket("udp4", port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { p.Close() })
			go sendBack(p)
		}
		return nil
	}))
	s.must(os.WriteFile(s.file, fmt.Appendf(nil, wireConfig, driver, ""), 0o644))
	s.start()
	return s
}

// Datagrams without Don't Fragment pass a narrower link to the backend, and their replies a narrower link to the client:
// Linux puts the fragments together, also those of fragments.
func TestDatagramsPassNarrowerLinks(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		for _, mtu := range [][2]int{{1500, 700}, {700, 1500}} {
			t.Run(fmt.Sprint(driver, " ", mtu), func(t *testing.T) {
				s := newNarrow(t, driver, mtu[0], mtu[1])
				for _, address := range []string{"198.18.0.100:53", "198.18.0.100:54"} {
					s.echoes(address, 100) // it is up
					c := s.dial("udp4", address)
					for i, size := range []int{1400, 1472, 4000, 9000, 673} {
						data, got := bytes.Repeat([]byte{byte(i), 7, 9}, size/3), make([]byte, 1<<16)
						c.Write(data)
						c.SetReadDeadline(time.Now().Add(time.Minute))
						if n, err := c.Read(got); err != nil || !bytes.Equal(got[:n], data) {
							t.Fatalf("%s: %d bytes: %d came back, %v", address, len(data), n, err)
						}
					}
				}
				sum := s.stop()
				if sum.Originated < 10 || sum.Gateway.Answers["too_big"] != 0 {
					t.Errorf("%d fragments, answers %v", sum.Originated, sum.Gateway.Answers)
				}
			})
		}
	}
}
