package control_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/control"
)

// rangeModes are services with ranges of ports, in all modes and both families, for TCP and UDP. Both backends have
// servers on the first port, one in the middle and the last.
var rangeModes = []struct {
	mode, port string // %s of port is the service address
	first      int
	to         int // the backend's first port; 0 keeps the client's
}{
	{"mode: nat", "%s:8300-8399", 8300, 0},
	{"source: client", "%s:8400-8499", 8400, 9400},
	{"mode: ipip", "%s:8500-8599", 8500, 0},
	{"mode: gue", "%s:8600-8699", 8600, 0},
	{"mode: l2", "%s:8700-8799", 8700, 0},
}

// rangeOffsets are the ports of each range that servers have.
var rangeOffsets = []int{0, 42, 99}

func rangeServices(driver string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "devices: [{name: front, driver: %[1]s}, {name: back1, driver: %[1]s}, {name: back2, driver: %[1]s}]\n", driver)
	b.WriteString("snat: [198.18.2.1, \"2001:db8:2::1\"]\ntunnel: {source: [198.18.5.0/24, \"2001:db8:5::/64\"]}\nadmin: {socket: \"\"}\nservices:\n")
	for i, m := range rangeModes {
		for _, proto := range []string{"tcp", "udp"} {
			at := fmt.Sprintf(m.port, "198.18.1.1") + ", \"" + fmt.Sprintf(m.port, "[2001:db8:1::1]") + "\""
			fmt.Fprintf(&b, "  - {name: %s%d, protocol: %s, %s, address: [%s], backends: [", proto, i, proto, m.mode, at)
			for n := range 2 {
				four, six := fmt.Sprintf("198.18.%d.2", 3+n), fmt.Sprintf("2001:db8:%d::2", 3+n)
				if m.to != 0 {
					four, six = fmt.Sprintf("%s:%d-%d", four, m.to, m.to+99), fmt.Sprintf("[%s]:%d-%d", six, m.to, m.to+99)
				}
				fmt.Fprintf(&b, "{name: b%d, address: [%q, %q]},", n+1, four, six)
			}
			b.WriteString("]}\n")
		}
	}
	b.WriteString(`
  - {name: rest, address: "198.18.1.9:*", backends: [{name: b1, address: 198.18.3.2}]}
  - {name: exact, address: 198.18.1.9:8342, backends: [{name: b2, address: 198.18.4.2:8399}]}
  - name: ftp
    address: [198.18.1.9:21, 198.18.1.9:50000-59999]
    persistence: {by: client}
    backends: [{name: b1, address: 198.18.3.2}, {name: b2, address: 198.18.4.2}]
    health: {port: 21, interval: 500ms, timeout: 400ms, rise: 1}
`)
	return b.String()
}

// listenRanges starts the servers of backend i.
func (s *site) listenRanges(i int) {
	s.t.Helper()
	name := fmt.Sprintf("b%d", i+1)
	srv := &http.Server{Handler: backendMux(name)}
	s.t.Cleanup(func() { srv.Close() })
	s.must(s.backends[i].Do(func() error {
		for _, m := range rangeModes {
			port := m.first
			if m.to != 0 {
				port = m.to
			}
			for _, offset := range rangeOffsets {
				l, err := net.Listen("tcp", fmt.Sprintf(":%d", port+offset))
				if err != nil {
					return err
				}
				go srv.Serve(l)
				for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]", fmt.Sprintf("198.18.%d.2", 3+i), fmt.Sprintf("[2001:db8:%d::2]", 3+i)} {
					p, err := net.ListenPacket("udp", fmt.Sprintf("%s:%d", host, port+offset))
					if err != nil {
						return err
					}
					s.t.Cleanup(func() { p.Close() })
					go answerLoop(p, name)
				}
			}
		}
		return testnet.ServeTCP(s.t, ":21", ftpServer(s.backends[i], name, 50000+5000*i))
	}))
}

// ftpServer is an FTP server of one file, its name, in passive mode: ports from first on, which the other backend does not
// use.
func ftpServer(ns *testnet.Namespace, name string, first int) func(net.Conn) {
	var next atomic.Int32
	return func(c net.Conn) {
		var data net.Listener
		fmt.Fprint(c, "220 ready\r\n")
		for lines := bufio.NewScanner(c); lines.Scan(); {
			switch cmd, _, _ := strings.Cut(lines.Text(), " "); cmd {
			case "USER", "TYPE", "CWD":
				fmt.Fprint(c, "200 fine\r\n")
			case "EPSV":
				port := first + int(next.Add(1))
				if ns.Do(func() (err error) { data, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); return err }) != nil {
					return
				}
				defer data.Close()
				fmt.Fprintf(c, "229 passive (|||%d|)\r\n", port)
			case "RETR":
				fmt.Fprint(c, "150 comes\r\n")
				if d, err := data.Accept(); err == nil {
					fmt.Fprintln(d, name)
					d.Close()
				}
				fmt.Fprint(c, "226 done\r\n")
			default:
				fmt.Fprint(c, "500 unknown\r\n")
			}
		}
	}
}

// TestRangesServeRealPrograms has curl and UDP clients use ranges in every mode from both families, with curl as an FTP
// client whose data connections go to another port. tshark finds every checksum and length right.
func TestRangesServeRealPrograms(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "curl", "tcpdump", "tshark")
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) { rangesServe(t, driver) })
	}
}

func rangesServe(t *testing.T, driver string) {
	s, _ := layOutModes(t, "mr-gwrange-"+driver, driver)
	for i := range s.backends {
		s.listenRanges(i)
	}
	s.must(os.WriteFile(s.file, []byte(rangeServices(driver)), 0o644))
	s.start("http://198.18.1.1:8300/", "http://[2001:db8:1::1]:8742/", "http://198.18.1.9:8300/")
	captures := []*capture{record(t, s.client, "eth0"), record(t, s.backends[0], "eth0"), record(t, s.backends[1], "eth0")}
	for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
		for _, m := range rangeModes {
			for _, offset := range rangeOffsets {
				port := m.first + offset
				want := port
				if m.to != 0 {
					want = m.to + offset
				}
				for range 3 {
					out := s.served(fmt.Sprintf("http://%s:%d/", host, port), 5*time.Second)
					_, at, _ := strings.Cut(strings.TrimSpace(out), " at ")
					if ap, err := netip.ParseAddrPort(at); err != nil || int(ap.Port()) != want {
						t.Errorf("%s, port %d: the backend was asked at %s, want port %d", m.mode, port, out, want)
					}
				}
			}
			s.udpAt(host, m.first+rangeOffsets[1])
		}
	}
	for _, at := range []struct{ url, want string }{
		{"http://198.18.1.9:8342/", "b2"}, {"http://198.18.1.9:8300/", "b1"}, {"http://198.18.1.9:9499/", "b1"},
	} {
		if out := s.served(at.url, 5*time.Second); !strings.HasPrefix(out, at.want+" ") {
			t.Errorf("%s is served by %s", at.url, out)
		}
	}
	for range 5 {
		if out, err := s.client.Run("curl", "-sS", "-m", "10", "ftp://198.18.1.9/name"); err != nil || len(out) != len("b1\n") {
			t.Errorf("FTP: %q, %v", out, err)
		}
	}
	s.reloadRanges(driver)
	for _, c := range captures {
		if n := control.TsharkReads(t, c.stop()); n < 100 {
			t.Errorf("%d packets in %s", n, c.file)
		}
	}
	s.stop()
}

// reloadRanges shrinks the range of a connection that is open, which goes on. A new one is for nobody: the kernel of the
// gateway has no such address.
func (s *site) reloadRanges(driver string) {
	s.t.Helper()
	c := s.dial("tcp", "198.18.1.1:8342")
	name, err := ask(c)
	s.must(err)
	s.must(os.WriteFile(s.file, []byte(strings.ReplaceAll(rangeServices(driver), ":8300-8399", ":8300-8310")), 0o644))
	s.must(s.cmd.Process.Signal(syscall.SIGHUP))
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		fresh, err := net.Conn(nil), error(nil)
		s.must(s.client.Do(func() error {
			fresh, err = net.DialTimeout("tcp", "198.18.1.1:8342", 300*time.Millisecond)
			return nil
		}))
		if err != nil {
			break
		}
		fresh.Close()
		if time.Now().After(end) {
			s.t.Fatal("a port that is gone is served")
		}
	}
	if again, err := ask(c); err != nil || again != name {
		s.t.Errorf("an open connection of a port that is gone: %q after %q: %v", again, name, err)
	}
	s.served("http://198.18.1.1:8300/", 5*time.Second)
}
