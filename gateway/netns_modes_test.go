package gateway_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

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

func TestEveryModeServesRealPrograms(t *testing.T) {
	testnet.Program(t, "curl", "tcpdump", "tshark", "iperf3")
	s := newModesSite(t, "mr-gwmode", "afxdp")
	for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
		for i := range passages {
			p := &passages[i]
			t.Run(p.name+" from "+host, func(t *testing.T) { s.passage(t, p, host) })
		}
	}
	s.stop()
}

// passage has real programs use a passage, with captures of both sides.
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
}
