package gateway_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/internal/testnet"
)

// passage is a way from the clients to the backends: a mode, and the family of the backends' addresses in it.
// It has ports of its own, so that all are services of one gateway.
type passage struct {
	name, mode string
	backend6   bool
	port       int // HTTP; one more is UDP, two more iperf3
}

var passages = []passage{
	{"nat gateway", "mode: nat", false, 8100},
	{"nat client", "mode: nat, source: client", false, 8110},
	{"ipip to IPv4", "mode: ipip", false, 8120},
	{"ipip to IPv6", "mode: ipip", true, 8130},
	{"gue to IPv4", "mode: gue", false, 8140},
	{"gue to IPv6", "mode: gue", true, 8150},
	{"l2", "mode: l2", false, 8160},
}

func (p *passage) nat() bool { return strings.Contains(p.mode, "nat") }

// services returns the services of a passage: HTTP and UDP by both backends, iperf3 by the first.
func (p *passage) services() string {
	var b strings.Builder
	for i, proto := range []string{"tcp", "udp", "tcp"} {
		port := p.port + i
		fmt.Fprintf(&b, "  - {name: s%d, protocol: %s, %s, address: [198.18.1.1:%[1]d, \"[2001:db8:1::1]:%[1]d\"], backends: [", port, proto, p.mode)
		for n := range 2 {
			if i == 2 && n == 1 {
				break
			}
			four, six := fmt.Sprintf("198.18.%d.2", 3+n), fmt.Sprintf("2001:db8:%d::2", 3+n)
			switch {
			case p.nat():
				fmt.Fprintf(&b, "{name: b%d, address: [\"%s:%d\", \"[%s]:%[3]d\"]},", n+1, four, port, six)
			case p.backend6:
				fmt.Fprintf(&b, "{name: b%d, address: \"%s\"},", n+1, six)
			default:
				fmt.Fprintf(&b, "{name: b%d, address: %s},", n+1, four)
			}
		}
		b.WriteString("]}\n")
	}
	return b.String()
}

// newModesSite is a site with the services of all passages. Backends have the services' addresses and answer
// clients over links of their own, by which nothing comes to the gateway.
func newModesSite(t *testing.T, prefix, driver string) *site {
	t.Helper()
	s, n := layOut(t, prefix)
	for i, ns := range s.backends {
		s.must(ns.Sysctl("net.ipv4.conf.all.rp_filter", "0"))
		s.must(ns.Sysctl("net.ipv4.conf.default.rp_filter", "0"))
		ret := fmt.Sprintf("ret%d", i+1)
		s.must(n.Link(ns, "ret", s.client, ret))
		s.must(ns.NoOffload("ret"))
		s.must(s.client.NoOffload(ret))
		s.must(ns.Up("ret", fmt.Sprintf("198.18.%d.2/24", 13+i), fmt.Sprintf("2001:db8:%d::2/64", 13+i)))
		s.must(s.client.Up(ret, fmt.Sprintf("198.18.%d.1/24", 13+i), fmt.Sprintf("2001:db8:%d::1/64", 13+i)))
		s.must(ns.Up("lo", "198.18.1.1/32", "2001:db8:1::1/128"))
		for _, args := range [][]string{
			{"-4", "rule", "add", "from", "198.18.1.1", "lookup", "100"},
			{"-4", "route", "add", "default", "via", fmt.Sprintf("198.18.%d.1", 13+i), "table", "100"},
			{"-6", "rule", "add", "from", "2001:db8:1::1", "lookup", "100"},
			{"-6", "route", "add", "default", "via", fmt.Sprintf("2001:db8:%d::1", 13+i), "table", "100"},
		} {
			_, err := ns.Run("ip", args...)
			s.must(err)
		}
		s.decap[i] = receiveTunnels(t, ns, 6080)
		for _, p := range passages {
			s.serve(i, p.port)
		}
	}
	s.must(s.client.Sysctl("net.ipv4.conf.all.rp_filter", "0"))
	var b strings.Builder
	fmt.Fprintf(&b, "devices: [{name: front, driver: %[1]s}, {name: back1, driver: %[1]s}, {name: back2, driver: %[1]s}]\n", driver)
	b.WriteString("snat: [198.18.2.1, \"2001:db8:2::1\"]\ntunnel: {source: [198.18.5.0/24, \"2001:db8:5::/64\"]}\nadmin: {socket: \"\"}\nservices:\n")
	for _, p := range passages {
		b.WriteString(p.services())
	}
	s.must(os.WriteFile(s.file, []byte(b.String()), 0o644))
	s.start("http://198.18.1.1:8100/", "http://[2001:db8:1::1]:8150/")
	return s
}

// serve starts backend i's servers of a passage, of both families: HTTP, UDP that answers with the backend's
// name, and iperf3.
func (s *site) serve(i, port int) {
	s.t.Helper()
	name := fmt.Sprintf("b%d", i+1)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s at %s\n", name, r.RemoteAddr, r.Context().Value(http.LocalAddrContextKey))
	})
	mux.HandleFunc("/stream", stream)
	mux.HandleFunc("/hash", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
	})
	srv := &http.Server{Handler: mux}
	s.must(s.backends[i].Do(func() error {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		go srv.Serve(l)
		s.t.Cleanup(func() { srv.Close() })
		// A socket for each address: the answer comes from the one that was asked.
		for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]", fmt.Sprintf("198.18.%d.2", 3+i), fmt.Sprintf("[2001:db8:%d::2]", 3+i)} {
			p, err := net.ListenPacket("udp", fmt.Sprintf("%s:%d", host, port+1))
			if err != nil {
				return err
			}
			s.t.Cleanup(func() { p.Close() })
			go answerLoop(p, name)
		}
		return nil
	}))
}

// TestEveryModeServesRealPrograms has curl, UDP clients and iperf3 use every passage from both families. What passed the
// links of the client and the backends is captured, and tshark finds every checksum and length right.
func TestEveryModeServesRealPrograms(t *testing.T) {
	testnet.Program(t, "curl", "tcpdump", "tshark", "iperf3")
	s := newModesSite(t, "mr-gwmode", "afxdp")
	captures := []*capture{
		record(t, s.client, "eth0"), record(t, s.client, "ret1"),
		record(t, s.backends[0], "eth0"), record(t, s.backends[1], "eth0"),
	}
	for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
		for i := range passages {
			p := &passages[i]
			t.Run(p.name+" from "+host, func(t *testing.T) { s.passage(t, p, host) })
		}
	}
	packets := 0
	for _, c := range captures {
		n := gateway.TsharkReads(t, c.stop())
		t.Logf("%s: %d packets", filepath.Base(c.file), n)
		packets += n
	}
	if packets < 10000 {
		t.Errorf("captured %d packets", packets)
	}
	for _, host := range []string{"198.18.1.1", "2001:db8:1::1"} {
		for i := range passages {
			s.iperf(host, passages[i].port+2)
		}
	}
	sum := s.stop()
	if n := sum.Gateway.Answers["too_big"]; n < 2*4 { // each tunnel, each family
		t.Errorf("told %d times that a packet is too big", n)
	}
}

// passage has curl and UDP clients use a passage.
func (s *site) passage(t *testing.T, p *passage, host string) {
	seen := map[string]int{}
	for range 20 {
		out := s.served(fmt.Sprintf("http://%s:%d/", host, p.port), 5*time.Second)
		name, _, _ := strings.Cut(out, " ")
		seen[name]++
		if !p.nat() && !strings.HasSuffix(out, fmt.Sprintf("at %s:%d\n", host, p.port)) {
			t.Errorf("the backend was asked %s", out)
		}
	}
	if seen["b1"] == 0 || seen["b2"] == 0 {
		t.Errorf("served by %v", seen)
	}
	s.udpAt(host, p.port+1)
	s.forgetMTU()
	s.upload(t, fmt.Sprintf("http://%s:%d/hash", host, p.port), 300_000)
	out, err := s.client.Run("sh", "-c", fmt.Sprintf("curl -sS -m 20 'http://%s:%d/stream?n=300000' | sha256sum", host, p.port))
	if want := fmt.Sprintf("%x", sumOf(300_000)); err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("downloaded %s, want %s: %v", out, want, err)
	}
}

// forgetMTU has the client forget what it was told of the MTU of its paths.
func (s *site) forgetMTU() {
	for _, family := range []string{"-4", "-6"} {
		_, err := s.client.Run("ip", family, "route", "flush", "cache")
		s.must(err)
	}
}

// upload has curl send n bytes in segments as large as the client's link takes: a tunnel's overhead is more than
// that, so they arrive only if the client is told.
func (s *site) upload(t *testing.T, url string, n int64) {
	file := filepath.Join(t.TempDir(), "upload")
	b, err := io.ReadAll(io.LimitReader(sequence(), n))
	s.must(err)
	s.must(os.WriteFile(file, b, 0o644))
	out, err := s.client.Run("curl", "-sS", "-m", "20", "-H", "Expect:", "--data-binary", "@"+file, url)
	if want := fmt.Sprintf("%d %x <nil>", n, sumOf(n)); err != nil || out != want {
		t.Errorf("%s received %s, want %s: %v", url, out, want, err)
	}
}

// sumOf returns the hash of the first n bytes of the sequence.
func sumOf(n int64) []byte {
	sum := sha256.New()
	io.CopyN(sum, sequence(), n)
	return sum.Sum(nil)
}

// iperf sends 32 MB each way.
func (s *site) iperf(host string, port int) {
	s.t.Helper()
	server := exec.Command("iperf3", "-s", "-p", fmt.Sprint(port))
	s.must(s.backends[0].Start(server))
	defer func() { server.Process.Kill(); server.Wait() }()
	for _, way := range []string{"--reverse", "--no-delay"} {
		out, err := "", error(nil)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if out, err = s.client.Run("iperf3", "-c", host, "-p", fmt.Sprint(port), "-n", "32M", way, "--connect-timeout", "2000"); err == nil {
				break // the server needs a moment to listen
			}
		}
		if err != nil || !strings.Contains(out, "iperf Done.") {
			s.t.Errorf("%s port %d %s: %v: %s", host, port, way, err, out)
		}
	}
}
