package control_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/control"
)

// passage is a way from the clients to the backends: a mode, and the family of the backends' addresses in it.
// It has ports of its own, so that all are services of one gateway.
type passage struct {
	name, mode string
	backend6   bool
	port       int // HTTP; one more is UDP, two more iperf3, three more TCP that sends all back
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

// services returns the services of a passage: by both backends, but iperf3 by the first alone.
func (p *passage) services() string {
	var b strings.Builder
	for i, proto := range []string{"tcp", "udp", "tcp", "tcp"} {
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

// refusals are services whose backends fail their checks: nobody listens there.
const refusals = `
  - {name: reject, unavailable: reject, address: [198.18.1.1:8200, "[2001:db8:1::1]:8200"], backends: [{address: ["198.18.3.2:9", "[2001:db8:3::2]:9"]}], health: {interval: 200ms, timeout: 100ms, fall: 1}}
  - {name: rejectudp, protocol: udp, unavailable: reject, address: [198.18.1.1:8201, "[2001:db8:1::1]:8201"], backends: [{address: ["198.18.3.2:9", "[2001:db8:3::2]:9"]}], health: {type: tcp, port: 9, interval: 200ms, timeout: 100ms, fall: 1}}
  - {name: drop, address: 198.18.1.1:8202, backends: [{address: 198.18.3.2:9}], health: {interval: 200ms, timeout: 100ms, fall: 1}}
`

// layOutModes makes a site with the services of all passages. Backends have the services' addresses and answer
// clients over links of their own, by which nothing comes to the gateway.
func layOutModes(t *testing.T, prefix, driver string) (*site, *testnet.Net) {
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
	b.WriteString(refusals)
	s.must(os.WriteFile(s.file, []byte(b.String()), 0o644))
	return s, n
}

// startModes starts the gateway of a modes site.
func (s *site) startModes() {
	s.t.Helper()
	s.start("http://198.18.1.1:8100/", "http://[2001:db8:1::1]:8150/")
}

// serve starts backend i's servers of a passage, of both families: HTTP, UDP that answers with the backend's
// name, and iperf3.
func (s *site) serve(i, port int) {
	s.t.Helper()
	name := fmt.Sprintf("b%d", i+1)
	srv := &http.Server{Handler: backendMux(name)}
	s.must(s.backends[i].Do(func() error {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		go srv.Serve(l)
		s.t.Cleanup(func() { srv.Close() })
		if err := testnet.ServeTCP(s.t, fmt.Sprintf(":%d", port+3), testnet.Echo); err != nil {
			return err
		}
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

// TestEveryModeServesRealPrograms has curl, UDP clients and iperf3 use every passage from both families.
// What passed the links of the client and the backends is captured, and tshark finds every checksum and
// length right.
func TestEveryModeServesRealPrograms(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "curl", "tcpdump", "tshark", "iperf3")
	s, _ := layOutModes(t, "mr-gwmode", "afxdp")
	s.startModes()
	start := time.Now()
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
	t.Logf("passages done after %v", time.Since(start).Round(time.Millisecond))
	packets := 0
	for _, c := range captures {
		n := control.TsharkReads(t, c.stop())
		t.Logf("%s: %d packets", filepath.Base(c.file), n)
		packets += n
	}
	t.Logf("captures read after %v", time.Since(start).Round(time.Millisecond))
	if packets < 10000 {
		t.Errorf("captured %d packets", packets)
	}
	for _, host := range []string{"198.18.1.1", "2001:db8:1::1"} {
		for i := range passages {
			s.iperf(host, passages[i].port+2)
		}
	}
	t.Logf("bulk done after %v", time.Since(start).Round(time.Millisecond))
	s.refusals()
	t.Logf("refusals done after %v", time.Since(start).Round(time.Millisecond))
	s.crowd(10_000, "198.18.1.1:8103", "[2001:db8:1::1]:8103", "198.18.1.1:8123", "[2001:db8:1::1]:8123")
	sum := s.stop()
	if n := sum.Gateway.Answers["too_big"]; n < 2*4 { // each tunnel, each family
		t.Errorf("told %d times that a packet is too big", n)
	}
}

// TestEveryModeServesOverAFPacket is the same by the other driver, without captures.
func TestEveryModeServesOverAFPacket(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "curl")
	s, _ := layOutModes(t, "mr-gwafp", "afpacket")
	s.startModes()
	for i := range passages {
		s.passage(t, &passages[i], []string{"198.18.1.1", "[2001:db8:1::1]"}[i%2])
	}
	s.stop()
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

// backendMux is what backends serve by HTTP: who they are, a stream, and the hash of what they are sent.
func backendMux(name string) http.Handler {
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
	return mux
}

// forgetMTU has the client forget what it was told of the MTU of its paths.
func (s *site) forgetMTU() {
	for _, family := range []string{"-4", "-6"} {
		_, err := s.client.Run("ip", family, "route", "flush", "cache")
		s.must(err)
	}
}

// upload has curl send n bytes in segments as large as the client's link takes: a tunnel's overhead is
// more than that, so they arrive only if the client is told.
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

// iperf sends 8 MB each way.
func (s *site) iperf(host string, port int) {
	s.t.Helper()
	server := exec.Command("iperf3", "-s", "-p", fmt.Sprint(port))
	s.must(s.backends[0].Start(server))
	defer func() { server.Process.Kill(); server.Wait() }()
	for _, way := range []string{"--reverse", "--no-delay"} {
		out, err := "", error(nil)
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if out, err = s.client.Run("iperf3", "-c", host, "-p", fmt.Sprint(port), "-n", "8M", way, "--connect-timeout", "2000"); err == nil {
				break // the server needs a moment to listen
			}
		}
		if err != nil || !strings.Contains(out, "iperf Done.") {
			s.t.Errorf("%s port %d %s: %v: %s", host, port, way, err, out)
		}
	}
}

// refusals: a client of a service without backends is told at once, or hears nothing.
func (s *site) refusals() {
	s.t.Helper()
	for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
		refused := func(network string, port int) {
			var err error
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if err = s.knock(network, fmt.Sprintf("%s:%d", host, port), 5*time.Second); errors.Is(err, syscall.ECONNREFUSED) {
					return // before, the check has not failed yet
				}
			}
			s.t.Errorf("%s %s:%d: %v, want a refusal", network, host, port, err)
		}
		refused("tcp", 8200)
		refused("udp", 8201)
	}
	if err := s.knock("tcp", "198.18.1.1:8202", 500*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Errorf("with `unavailable: drop`: %v", err)
	}
}

// knock connects, or asks by UDP, and returns the error.
func (s *site) knock(network, at string, patience time.Duration) error {
	return s.client.Do(func() error {
		c, err := net.DialTimeout(network, at, patience)
		if err != nil {
			var op *net.OpError
			if errors.As(err, &op) && op.Timeout() {
				return os.ErrDeadlineExceeded
			}
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		fmt.Fprint(c, "hello")
		_, err = c.Read(make([]byte, 100))
		return err
	})
}

// crowdEnv makes the test's binary a crowd of clients: the variable is their number and the addresses, and
// spaces between. It is a process of its own so that each side of the connections has a limit of open
// files to itself.
const crowdEnv = "MILLRACE_TEST_CROWD"

// crowd has n connections open at once, spread over the addresses, and uses each twice.
func (s *site) crowd(n int, at ...string) {
	s.t.Helper()
	var limit syscall.Rlimit
	s.must(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if need := uint64(n + 500); limit.Cur < need {
		limit = syscall.Rlimit{Cur: need, Max: max(need, limit.Max)}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			s.t.Errorf("%d connections need as many open files: %v", n, err)
			return
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", crowdEnv, n, strings.Join(at, " ")))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	s.must(s.client.Start(cmd))
	if err := cmd.Wait(); err != nil {
		s.t.Errorf("%v: %s", err, &out)
	}
	s.t.Log(out.String())
}

// runCrowd is what the process of a crowd does.
func runCrowd(spec string) error {
	at := strings.Fields(spec)
	n, err := strconv.Atoi(at[0])
	if err != nil {
		return err
	}
	at = at[1:]
	var conns []net.Conn
	for i := range n {
		c, err := net.DialTimeout("tcp", at[i%len(at)], 20*time.Second)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		conns = append(conns, c)
	}
	for round := range 2 {
		errs, turn := make(chan error, n), make(chan bool, 500) // more at once, and rings overflow
		for i, c := range conns {
			turn <- true
			go func() { errs <- echoed(c, fmt.Sprintf("round %d of %d", round, i)); <-turn }()
		}
		for range conns {
			if err := <-errs; err != nil {
				return err
			}
		}
	}
	return nil
}

// echoed sends a word and waits until it has come back.
func echoed(c net.Conn, word string) error {
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	b := make([]byte, len(word))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != word {
		return fmt.Errorf("sent %q, got %q: %w", word, b, err)
	}
	return nil
}
