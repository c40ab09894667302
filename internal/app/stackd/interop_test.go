package stackd

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/app/service"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/tcp"
)

// size returns how much a test transfers: short in CI, and what MILLRACE_INTEROP says (bytes, or such as 10G) in
// `make interop`.
func size(t *testing.T, short int64) int64 {
	t.Helper()
	text := os.Getenv("MILLRACE_INTEROP")
	if text == "" {
		return short
	}
	shift := strings.Index("kMG", text[len(text)-1:])
	n, err := strconv.ParseInt(strings.TrimRight(text, "kMG"), 10, 64)
	if err != nil {
		t.Fatalf("MILLRACE_INTEROP is %q: say such as 10G", text)
	}
	return n << (10 * (shift + 1))
}

// patternSum returns the SHA-256 of what /bytes/n sends.
func patternSum(n int64) string {
	s, _, _ := sum(service.Pattern(n))
	return s
}

func TestProgramsOfLinuxReachTheServices(t *testing.T) {
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := newSite(t, "programs", siteConfig{driver: driver})
			for _, addr := range []string{host4, host6} {
				s.ping(addr, 56)
				s.ping(addr, 4000) // in fragments
				s.nc(addr)
			}
			s.curl()
		})
	}
}

// nc speaks to echo by TCP and UDP.
func (s *site) nc(addr string) {
	s.t.Helper()
	testnet.Program(s.t, "nc")
	for _, args := range [][]string{{"-N", "-w", "5"}, {"-u", "-w", "1"}} {
		const text = "what goes comes back\n"
		cmd := exec.Command("nc", append(args, addr, "7")...)
		var out bytes.Buffer
		cmd.Stdin, cmd.Stdout = strings.NewReader(text), &out
		err := s.linux.Start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil || out.String() != text {
			s.t.Errorf("nc %v %s: %q, %v", args, addr, &out, err)
		}
	}
}

// curl gets and puts some megabytes.
func (s *site) curl() {
	s.t.Helper()
	const n = 8 << 20
	file := s.t.TempDir() + "/body"
	f, err := os.Create(file)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.Copy(f, newContent(n)); err != nil {
		s.t.Fatal(err)
	}
	f.Close()
	want, _, _ := sum(newContent(n))
	for _, host := range s.hosts() {
		url := "http://" + host
		if got := s.run("curl", "-sS", "--fail", "-g", "-T", file, url+"/sum"); got != fmt.Sprintf("%s %d\n", want, n) {
			s.t.Errorf("curl -T to %s: %q, want %s", host, got, want)
		}
		back := file + ".back"
		s.run("curl", "-sS", "--fail", "-g", "-T", file, "-o", back, url+"/echo")
		if got := fileSum(s.t, back); got != want {
			s.t.Errorf("curl -T to %s/echo: %s came back, want %s", host, got, want)
		}
		s.run("curl", "-sS", "--fail", "-g", "-o", back, url+"/bytes/8M")
		if got := fileSum(s.t, back); got != patternSum(n) {
			s.t.Errorf("curl from %s: %s, want %s", host, got, patternSum(n))
		}
	}
}

func fileSum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer f.Close()
	s, _, err := sum(f)
	if err != nil {
		t.Error(err)
	}
	return s
}

// iperf3 runs the client on the Linux host and returns the bytes that were sent and received, or datagrams and lost ones.
func (s *site) iperf3(args ...string) (sent, received, lost int64) {
	s.t.Helper()
	testnet.Program(s.t, "iperf3")
	cmd := exec.Command("iperf3", append([]string{"-J", "-c", host4}, args...)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := s.linux.Start(cmd)
	if err == nil {
		_ = cmd.Wait() // what was wrong is in the report
	}
	type total struct {
		Bytes   int64 `json:"bytes"`
		Packets int64 `json:"packets"`
		Lost    int64 `json:"lost_packets"`
	}
	var r struct {
		Error string `json:"error"`
		End   struct {
			Sent     total `json:"sum_sent"`
			Received total `json:"sum_received"`
			Sum      total `json:"sum"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Error != "" {
		s.t.Errorf("iperf3 %v: %q, %v", args, r.Error, err)
	}
	if r.End.Sum.Packets > 0 {
		return r.End.Sum.Packets, r.End.Sum.Packets - r.End.Sum.Lost, r.End.Sum.Lost
	}
	return r.End.Sent.Bytes, r.End.Received.Bytes, 0
}

// losses returns the counters that show where a datagram between us and Linux was lost: in the buffer of a
// socket (RcvbufErrors), at an interface, or in a CPU's backlog (second column of softnet_stat).
func (s *site) losses() string {
	return s.run("sh", "-c", "grep Udp: /proc/net/snmp; ip -s link show eth0; cat /proc/net/softnet_stat") +
		fmt.Sprintf("ours: %+v", s.d.Stats().UDP)
}

func TestIperf3OfLinuxMeasuresUs(t *testing.T) {
	s := newSite(t, "iperf3", siteConfig{})
	seconds := "1"
	if os.Getenv("MILLRACE_INTEROP") != "" {
		seconds = "10"
	}
	for _, args := range [][]string{
		{"-t", seconds}, {"-R", "-t", seconds}, {"--bidir", "-t", seconds}, {"-u", "-b", "1M", "-t", seconds}, {"-u", "-R", "-b", "1M", "-t", seconds},
	} {
		sent, received, lost := s.iperf3(args...)
		if received == 0 || received > sent || lost > 0 {
			t.Errorf("iperf3 %v: sent %d, received %d, lost %d\n%s", args, sent, received, lost, s.losses())
		}
		t.Logf("iperf3 %v: sent %d, received %d, lost %d", args, sent, received, lost)
	}
}

func TestManyBulkFlowsAtOnce(t *testing.T) {
	s := newSite(t, "bulk", siteConfig{queues: 2})
	n := fmt.Sprint(size(t, 128<<20))
	for _, args := range [][]string{{"-P", "64", "-n", n}, {"-R", "-P", "64", "-n", n}} {
		if sent, received, _ := s.iperf3(args...); received == 0 || received > sent {
			t.Errorf("iperf3 %v: sent %d, received %d", args, sent, received)
		}
	}
}

// TestManyFlowsAtOnceKeepTheirBytes: 64 connections, each with its own content, both ways.
func TestManyFlowsAtOnceKeepTheirBytes(t *testing.T) {
	s := newSite(t, "flows", siteConfig{queues: 2})
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if err := s.echo("tcp", net.JoinHostPort([]string{host4, host6}[i%2], "7"), int64(1<<20+i)); err != nil {
				t.Errorf("flow %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// TestPayloadOfLinuxIsPlaced: with AF_PACKET the payload of large packets goes straight from the driver to its connection, on two
// queues behind a dispatcher, beside the kernel's own address and without one.
func TestPayloadOfLinuxIsPlaced(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		s := newSite(t, fmt.Sprintf("placed%v", kernel), siteConfig{driver: "afpacket", queues: 2, large: true, kernel: kernel})
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if err := s.echo("tcp", net.JoinHostPort([]string{host4, host6}[i%2], "7"), int64(2<<20+i)); err != nil {
					t.Errorf("flow %d: %v", i, err)
				}
			})
		}
		all.Wait()
		placed := uint64(0)
		for _, l := range s.d.node.Loops() {
			placed += l.Stats().Placed
		}
		if placed < 5 { // only that of a connection whose reader waits just then
			t.Errorf("kernel %v: the payload of %d packets was placed", kernel, placed)
		}
	}
}

// TestPacketsBeyond64KiBReachTheStack has Linux build packets that no IP header can express: the stack gets all of them.
func TestPacketsBeyond64KiBReachTheStack(t *testing.T) {
	s := newSite(t, "big", siteConfig{driver: "afpacket", large: true})
	if err := s.linux.BigTCP("eth0", 500_000); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{host4, host6} {
		if err := s.echo("tcp", net.JoinHostPort(host, "7"), 16<<20); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	again, err := s.linux.Run("sh", "-c", "awk '/^Tcp:/{v=$13} END{print v}' /proc/net/snmp")
	if n, _ := strconv.Atoi(strings.TrimSpace(again)); err != nil || n > 100 {
		t.Errorf("Linux sent %q segments again, %v", again, err)
	}
	if c := s.d.node.Counters(); c.Dropped[node.DropRxInvalid] != 0 {
		t.Errorf("%v", c.Dropped)
	}
}

// echo sends n bytes to an echo service and compares what comes back.
func (s *site) echo(network, addr string, n int64) error {
	c, err := s.dial(network, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	go func() {
		_, _ = io.CopyBuffer(struct{ io.Writer }{c}, newContent(n), make([]byte, 32<<10))
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, m, err := sum(c)
	if want, _, _ := sum(newContent(n)); err != nil || got != want {
		return fmt.Errorf("%d bytes of %d came back, or others: %w", m, n, err)
	}
	return nil
}

// TestALongInteractiveSession: small messages of every size, each answered before the next, and some without waiting.
func TestALongInteractiveSession(t *testing.T) {
	s := newSite(t, "session", siteConfig{})
	for _, addr := range []string{host4, host6} {
		c, err := s.dial("tcp", net.JoinHostPort(addr, "7"))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		rounds := int(min(size(t, 3000), 100_000))
		for i := range rounds {
			msg := make([]byte, 8+i%1500)
			binary.BigEndian.PutUint64(msg, uint64(i))
			parts := 1 + i%3
			for part := range parts {
				if _, err := c.Write(msg[part*len(msg)/parts : (part+1)*len(msg)/parts]); err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
			}
			got := make([]byte, len(msg))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, msg) {
				t.Fatalf("round %d: %v, or another answer", i, err)
			}
		}
		c.Close()
	}
}

func TestLinksOfEveryMTU(t *testing.T) {
	for _, mtu := range []int{576, 1500, 9000} {
		for _, driver := range []string{"afxdp", "afpacket"} {
			t.Run(fmt.Sprint(mtu, " ", driver), func(t *testing.T) {
				s := newSite(t, "mtu", siteConfig{mtu: mtu, driver: driver})
				for _, host := range s.hosts() {
					s.bothWays(host, size(t, 3<<20))
				}
			})
		}
	}
}

// TestEveryOptionOnAndOff: what Linux offers, and what we do, in all the ways that they can meet.
func TestEveryOptionOnAndOff(t *testing.T) {
	off := func(name string) map[string]string { return map[string]string{"net.ipv4.tcp_" + name: "0"} }
	type check = func(*TCPReport) bool
	for name, tc := range map[string]struct {
		siteConfig
		ok check // of a connection that Linux made
	}{
		"as Linux comes": {siteConfig{}, func(r *TCPReport) bool {
			return r.Timestamps && r.SACK && r.SendScale > 0 && r.RecvScale > 0 && r.MSS == 1448 && r.Congestion == "cubic"
		}},
		"Linux without timestamps": {siteConfig{sysctl: off("timestamps")}, func(r *TCPReport) bool { return !r.Timestamps && r.SACK && r.MSS == 1460 }},
		"Linux without SACK":       {siteConfig{sysctl: off("sack"), impair: "loss=0.5%"}, func(r *TCPReport) bool { return !r.SACK && r.Timestamps }},
		"Linux without scaling":    {siteConfig{sysctl: off("window_scaling")}, func(r *TCPReport) bool { return r.SendScale == 0 && r.RecvScale == 0 && r.RecvWindow < 1<<16 }},
		"Linux without any": {
			siteConfig{sysctl: map[string]string{"net.ipv4.tcp_timestamps": "0", "net.ipv4.tcp_sack": "0", "net.ipv4.tcp_window_scaling": "0"}},
			func(r *TCPReport) bool { return !r.SACK && !r.Timestamps && r.SendScale == 0 },
		},
		"Linux asks for ECN": {
			siteConfig{sysctl: map[string]string{"net.ipv4.tcp_ecn": "1"}, impair: "ce=1%"}, func(r *TCPReport) bool { return r.ECN },
		},
		"without timestamps": {siteConfig{config: func(c *Config) { c.TCP.Options.NoTimestamps = true }}, func(r *TCPReport) bool { return !r.Timestamps && r.SACK }},
		"without SACK":       {siteConfig{config: func(c *Config) { c.TCP.Options.NoSACK = true }, impair: "loss=0.5%"}, func(r *TCPReport) bool { return !r.SACK }},
		"without scaling":    {siteConfig{config: func(c *Config) { c.TCP.Options.NoScaling = true }}, func(r *TCPReport) bool { return r.SendScale == 0 && r.RecvScale == 0 }},
		"without ECN": {
			siteConfig{config: func(c *Config) { c.TCP.Options.ECN = tcp.ECNOff }, sysctl: map[string]string{"net.ipv4.tcp_ecn": "1"}},
			func(r *TCPReport) bool { return !r.ECN && !r.AccECN },
		},
		"reno": {siteConfig{config: func(c *Config) { c.TCP.Options.Congestion = "reno" }, impair: "loss=0.5%"}, func(r *TCPReport) bool { return r.Congestion == "reno" }},
		"bbr":  {siteConfig{config: func(c *Config) { c.TCP.Options.Congestion = "bbr" }, impair: "loss=0.5%"}, func(r *TCPReport) bool { return r.Congestion == "bbr" }},
		"dctcp": {
			siteConfig{config: func(c *Config) { c.TCP.Options.Congestion = "dctcp" }, sysctl: map[string]string{"net.ipv4.tcp_ecn": "1"}, impair: "ce=1%"},
			func(r *TCPReport) bool { return r.ECN && r.Congestion == "dctcp" },
		},
		"small buffers": {
			siteConfig{config: func(c *Config) { c.TCP.Options.SendBuffer, c.TCP.Options.ReceiveBuffer = 8<<10, 8<<10 }},
			func(r *TCPReport) bool { return r.RecvWindow <= 8<<10 },
		},
		"small segments": {siteConfig{config: func(c *Config) { c.TCP.Options.MSS = 536 }}, func(r *TCPReport) bool { return r.MSS <= 536 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "options", tc.siteConfig)
			if r := s.report(); r == nil || !tc.ok(r) {
				t.Errorf("a connection is %+v", r)
			}
			for _, host := range s.hosts() {
				s.bothWays(host, size(t, 2<<20))
			}
		})
	}
}

// report returns what we know of a connection that Linux has made, and that has said something.
func (s *site) report() *TCPReport {
	s.t.Helper()
	c, err := s.dial("tcp", net.JoinHostPort(host4, "7"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "hello"); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) { // the last acknowledgment may be late, or lost
		for _, one := range s.d.Sockets(Query{Protocol: "tcp", States: []string{"ESTAB"}}).Sockets {
			if one.Remote.String() == c.LocalAddr().String() && one.Service == "echo" && one.TCP.Acked == 5 && one.TCP.Received == 5 {
				return one.TCP
			}
		}
	}
	return nil
}

// TestLossAndReorderingLoseNothing is the long one of `make interop`.
func TestLossAndReorderingLoseNothing(t *testing.T) {
	for _, profile := range []string{"loss=2% reorder=2%", "loss=2% reorder=2% dup=1% corrupt=0.1% delay=2ms±1ms"} {
		t.Run(profile, func(t *testing.T) {
			s := newSite(t, "loss", siteConfig{impair: profile})
			n := size(t, 24<<20)
			if strings.Contains(profile, "delay") {
				n /= 8
			}
			s.bothWays(host4, n)
			if c := s.d.Stats().TCP; c["retransmits"] == 0 || c["out_of_order"] == 0 {
				t.Errorf("the network was a good one: %v", c)
			}
		})
	}
}

// TestLinuxIsTheServer: we connect, send and receive.
func TestLinuxIsTheServer(t *testing.T) {
	s := newSite(t, "client", siteConfig{})
	for _, addr := range []string{net.JoinHostPort(linux4, "4000"), net.JoinHostPort(linux6, "4000")} {
		l := s.listen(addr)
		const n = 8 << 20
		results := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				results <- err
				return
			}
			defer c.Close()
			got, m, err := sum(io.LimitReader(c, n))
			if want, _, _ := sum(newContent(n)); got != want {
				results <- fmt.Errorf("Linux received %d bytes of %d, or others: %w", m, n, err)
				return
			}
			_, err = io.Copy(struct{ io.Writer }{c}, service.Pattern(n))
			results <- err
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		c, err := s.d.stack.DialContext(ctx, "tcp", addr)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.Copy(struct{ io.Writer }{c}, newContent(n)); err != nil {
			t.Error(err)
		}
		if err := c.(*socket.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		got, m, err := sum(c)
		if err != nil || got != patternSum(n) {
			t.Errorf("received %d bytes of %d, or others: %v", m, n, err)
		}
		if err := <-results; err != nil {
			t.Error(err)
		}
		c.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if c, err := s.d.stack.DialContext(ctx, "tcp", net.JoinHostPort(linux4, "4999")); err == nil {
		c.Close()
		t.Error("connected to a port where nobody listens")
	} else if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a closed port of Linux: %v", err)
	}
}

// TestNagleIsAsTheConfigurationSays: on connections that are accepted and on those that are made.
func TestNagleIsAsTheConfigurationSays(t *testing.T) {
	for _, nagle := range []bool{false, true} {
		s := newSite(t, "nagle", siteConfig{config: func(c *Config) { c.TCP.Nagle = nagle }})
		l := s.listen(net.JoinHostPort(linux4, "4000"))
		c, err := s.d.stack.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		var got bool
		if err := c.(*socket.TCPConn).SetOptions(func(o *tcp.Options) { got = o.NoDelay }); err != nil || got == nagle {
			t.Errorf("Nagle %v: NoDelay is %v, %v", nagle, got, err)
		}
		c.Close()
	}
}
