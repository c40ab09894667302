package control_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestAnInterfaceThatComesBackServesAgain deletes interfaces of a running gateway and adds them again, with another link
// address: others serve meanwhile, connections go on afterwards, and at the end every frame is back (Close audits them).
func TestAnInterfaceThatComesBackServesAgain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"afxdp", "afpacket", "afxdp, kernel flows", "afpacket, kernel flows"} {
		t.Run(name, func(t *testing.T) {
			driver, _, kernel := strings.Cut(name, ",")
			s, n := layOutQueues(t, "mr-gwback", 2)
			for i := range s.backends {
				s.listen(i)
			}
			text := strings.ReplaceAll(fmt.Sprintf(siteConfig, driver, ""), "driver: "+driver, "queues: 2, ring: 512, driver: "+driver)
			if kernel {
				text = "kernel_flows: on\n" + text
			}
			s.must(os.WriteFile(s.file, []byte(text), 0o644))
			s.start("http://198.18.1.1/", "http://198.18.1.1:81/")
			conns, rings := s.hold(40), s.fillRings(512)
			for range 8 { // enough for the kernel to have them
				for c, name := range conns {
					if got, err := ask(c); err != nil || got != name {
						t.Fatalf("a connection to %s is served by %q: %v", name, got, err)
					}
				}
			}

			s.deleted("back1")
			for c, name := range conns {
				if name != "b2" {
					continue
				}
				if got, err := ask(c); err != nil || got != name {
					t.Fatalf("without back1 a connection to b2 is served by %q: %v", got, err)
				}
			}
			s.link(n, s.backends[0], "back1", 3)
			s.logged("msg=link device=back1 state=up")
			s.served("http://198.18.1.1:81/", 20*time.Second) // b1's alone

			s.deleted("front")
			s.link(n, s.client, "front", 0)
			s.logged("msg=link device=front state=up")
			s.served("http://198.18.1.1:81/", 20*time.Second)
			for c, name := range conns {
				if got, err := ask(c); err != nil || got != name {
					t.Fatalf("a connection to %s is served by %q: %v", name, got, err)
				}
			}
			if n := s.programs(); kernel && n != 3 || !kernel && n != 0 {
				t.Errorf("%d programs at the hooks of 3 interfaces", n)
			}
			if n := s.fillRings(512); n != rings || (n > 0) != (driver == "afxdp") {
				t.Errorf("%d rings of 512 packets, and %d at the start", n, rings)
			}
			if sum := s.stop(); kernel && sum.Gateway.Kernel.Entered < 40 {
				t.Errorf("%d connections were given to the kernel, want 40 at least", sum.Gateway.Kernel.Entered)
			}
		})
	}
}

// fillRings counts the fill rings of AF_XDP sockets that the gateway has mapped, with so many entries.
func (s *site) fillRings(entries int) (n int) {
	s.t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.cmd.Process.Pid))
	s.must(err)
	for line := range strings.Lines(string(maps)) {
		var from, to, offset int
		_, err := fmt.Sscanf(line, "%x-%x rw-s %x", &from, &to, &offset)
		if err == nil && offset == 1<<32 && to-from == 8*entries+4096 && strings.Contains(line, "socket:") {
			n++
		}
	}
	return n
}

// deleted deletes an interface of the gateway and waits until the gateway has seen it.
func (s *site) deleted(name string) {
	s.t.Helper()
	_, err := s.gate.Run("ip", "link", "del", name)
	s.must(err)
	s.logged("msg=link device=" + name + " state=gone")
}

// logged waits for a record of the gateway.
func (s *site) logged(record string) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(s.log.String(), record); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not logged: %s", record)
		}
	}
}

// A gateway goes on where its interfaces are renamed, and renamed back.
func TestARenamedInterfaceServesOn(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s, _ := layOutQueues(t, "mr-gwname", 1)
			for i := range s.backends {
				s.listen(i)
			}
			s.must(os.WriteFile(s.file, []byte(fmt.Sprintf(siteConfig, driver, "")), 0o644))
			s.start("http://198.18.1.1/", "http://198.18.1.1:81/")
			for _, name := range [][2]string{{"front", "wan0"}, {"back1", "lan0"}, {"wan0", "front"}, {"lan0", "back1"}} {
				_, err := s.gate.Run("ip", "link", "set", name[0], "name", name[1])
				s.must(err)
				s.logged("renamed=" + name[1])
				time.Sleep(50 * time.Millisecond) // an idle loop looks at its devices
				s.served("http://198.18.1.1/", 20*time.Second)
				s.served("http://198.18.1.1:81/", 20*time.Second)
			}
			s.stop()
		})
	}
}
