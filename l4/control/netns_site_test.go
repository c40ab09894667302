package control_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/gateway/upgrade"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/metrics"
)

// The gateway between real programs, over veth and AF_XDP:
//
//	client                    gateway                        backends
//	eth0 198.18.0.2 -------- front 198.18.0.1
//	     2001:db8::2               2001:db8::1
//	                         back1 198.18.3.1 -------------- b1 eth0 198.18.3.2, 2001:db8:3::2
//	                         back2 198.18.4.1 -------------- b2 eth0 198.18.4.2, 2001:db8:4::2
//
//	services 198.18.1.1, 2001:db8:1::1; SNAT 198.18.2.1, 2001:db8:2::1: no kernel has these.

// configEnv makes the test's binary a gateway: it runs the file that the variable names.
const configEnv = "MILLRACE_TEST_GATEWAY"

// adminEnv, set to anything, makes that gateway serve the control socket of its configuration.
const adminEnv = "MILLRACE_TEST_ADMIN"

func TestMain(m *testing.M) {
	for env, run := range map[string]func(string) error{configEnv: serve, crowdEnv: runCrowd, crashEnv: runCrash} {
		if arg := os.Getenv(env); arg != "" {
			if err := run(arg); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}

// serve runs a gateway until SIGINT or SIGTERM and prints its summary. SIGHUP reloads.
func serve(file string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // before anything is open: it may come early
	defer stop()
	before, err := upgrade.Inherit()
	if err != nil {
		return err
	}
	d, err := daemon.Open(file, daemon.Options{
		Log: log, Metrics: textMetrics, Admin: os.Getenv(adminEnv) != "", GPU: faultyGPU(),
		Predecessor: before, Program: func(string) upgrade.Program { return upgrade.Program{} }, // the file is in the environment
	})
	if err != nil {
		return err
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for range hup {
			_, err := d.Reload()
			log.Info("reload", "error", err)
		}
	}()
	if err := d.Run(ctx); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(d.Summary()); err != nil {
		return err
	}
	return d.Close()
}

// textMetrics serves metrics in the text format. The binary serves them by Prometheus's library.
func textMetrics(r *metrics.Registry) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		series, err := r.Gather()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, s := range series {
			_, _ = io.WriteString(w, s.String())
		}
	})
}

// site is the network above and a gateway in it.
type site struct {
	t            *testing.T
	queues       int  // of all interfaces
	admin        bool // the gateway serves its control socket
	client, gate *testnet.Namespace
	backends     [2]*testnet.Namespace
	servers      [2]*http.Server
	decap        [2]*decapsulator // with direct modes
	file         string           // configuration
	env          []string         // of the gateway, beside the test's own
	urls         []string         // what is served once the gateway is up
	cmd          *exec.Cmd
	out          bytes.Buffer
	log          testnet.Log
}

const siteConfig = `
devices: [{name: front, driver: %[1]s}, {name: back1, driver: %[1]s}, {name: back2, driver: %[1]s}]
snat: [198.18.2.1, "2001:db8:2::1"]
services:
  - name: web
    address: [198.18.1.1:80, "[2001:db8:1::1]:80"]
    backends:
      - {name: b1, address: [198.18.3.2:8080, "[2001:db8:3::2]:8080"]%[2]s}
      - {name: b2, address: [198.18.4.2:8080, "[2001:db8:4::2]:8080"]}
    health: {interval: 1s, timeout: 1s, rise: 1, fall: 2}
  - name: direct
    source: client
    address: [198.18.1.1:81, "[2001:db8:1::1]:81"]
    backends: [{name: b1, address: [198.18.3.2:8081, "[2001:db8:3::2]:8081"]}]
    health: {interval: 1s, timeout: 1s, rise: 1, fall: 1}
  - name: echo
    protocol: udp
    address: [198.18.1.1:53, "[2001:db8:1::1]:53"]
    backends:
      - {name: b1, address: [198.18.3.2:5353, "[2001:db8:3::2]:5353"]}
      - {name: b2, address: [198.18.4.2:5353, "[2001:db8:4::2]:5353"]}
`

func newSite(t *testing.T, prefix, driver string) *site {
	t.Helper()
	s, _ := layOut(t, prefix)
	for i := range s.backends {
		s.listen(i)
	}
	s.configure(driver, "")
	s.start("http://198.18.1.1/", "http://[2001:db8:1::1]/", "http://198.18.1.1:81/")
	return s
}

// layOut makes the network, without programs in it.
func layOut(t *testing.T, prefix string) (*site, *testnet.Net) {
	t.Helper()
	return layOutQueues(t, prefix, 1)
}

// layOutQueues makes the network with so many queues on all interfaces.
func layOutQueues(t *testing.T, prefix string, queues int) (*site, *testnet.Net) {
	t.Helper()
	n := testnet.For(t, prefix)
	s := &site{t: t, queues: queues, client: n.Namespace("client"), gate: n.Namespace("gate"), file: filepath.Join(t.TempDir(), "gateway.yaml")}
	s.backends[0], s.backends[1] = n.Namespace("b1"), n.Namespace("b2")
	for _, ns := range []*testnet.Namespace{s.client, s.gate, s.backends[0], s.backends[1]} {
		s.must(ns.Sysctl("net.ipv6.conf.default.accept_dad", "0")) // link-local addresses are usable at once
	}
	s.link(n, s.client, "front", 0)
	s.link(n, s.backends[0], "back1", 3)
	s.link(n, s.backends[1], "back2", 4)
	return s, n
}

// link joins a host to the gateway; net is the third number of their network.
func (s *site) link(n *testnet.Net, host *testnet.Namespace, dev string, net int) {
	s.t.Helper()
	six := fmt.Sprintf("2001:db8:%d::", net)
	if net == 0 {
		six = "2001:db8::"
	}
	s.must(n.LinkQueues(host, "eth0", s.gate, dev, s.queues))
	s.must(host.NoOffload("eth0"))
	s.must(s.gate.NoOffload(dev))
	s.must(host.Up("eth0", fmt.Sprintf("198.18.%d.2/24", net), six+"2/64"))
	s.must(s.gate.Up(dev, fmt.Sprintf("198.18.%d.1/24", net), six+"1/64"))
	s.must(host.Route("default", fmt.Sprintf("198.18.%d.1", net)))
	s.must(host.Route("default", six+"1"))
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// configure writes the configuration; extra goes to backend b1 of the service web.
func (s *site) configure(driver, extra string) {
	s.must(os.WriteFile(s.file, fmt.Appendf(nil, siteConfig, driver, extra), 0o644))
}

// start runs the gateway and waits until it serves the urls, those of the first start when none is given.
func (s *site) start(urls ...string) {
	s.t.Helper()
	if len(urls) > 0 {
		s.urls = urls
	}
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(append(os.Environ(), configEnv+"="+s.file), s.env...)
	if s.admin {
		s.cmd.Env = append(s.cmd.Env, adminEnv+"=1")
	}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.log
	s.must(s.gate.Start(s.cmd))
	cmd := s.cmd
	s.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if s.t.Failed() {
			s.t.Log(s.log.String())
		}
	})
	for _, url := range s.urls {
		s.served(url, 20*time.Second)
	}
}

// served waits until url answers.
func (s *site) served(url string, within time.Duration) string {
	s.t.Helper()
	out, err := "", error(nil)
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if out, err = s.client.Run("curl", "-sS", "-m", "2", url); err == nil {
			return out
		}
	}
	s.t.Fatalf("%s is not served: %v", url, err)
	return ""
}

// stop ends the gateway and checks that its counters balance.
func (s *site) stop() daemon.Summary {
	s.t.Helper()
	s.must(s.cmd.Process.Signal(os.Interrupt))
	s.must(s.cmd.Wait())
	var sum daemon.Summary
	s.must(json.Unmarshal(s.out.Bytes(), &sum))
	total := sum.Forwarded + sum.Delivered + sum.Merged
	for _, n := range sum.Dropped {
		total += n
	}
	var rx, handled uint64
	for _, d := range sum.Devices {
		rx += d.RxPackets
	}
	handled = sum.Gateway.Forwarded + sum.Merged // the gateway decides on the first of those that are joined
	for _, n := range sum.Gateway.Dropped {
		handled += n
	}
	if total != sum.Received+sum.Originated || rx != sum.Received || handled != sum.Received {
		s.t.Errorf("received %d, drivers say %d, the gateway decided %d; met their end %d: %s", sum.Received, rx, handled, total, sum)
	}
	s.t.Log("\n" + sum.String())
	return sum
}

// listen starts backend i: HTTP on 8080 and 8081 that says its name and whom it sees, and UDP on 5353 that
// answers with its name.
func (s *site) listen(i int) {
	s.t.Helper()
	name := fmt.Sprintf("b%d", i+1)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s\n", name, r.RemoteAddr) })
	mux.HandleFunc("/stream", stream)
	s.servers[i] = &http.Server{Handler: mux}
	s.must(s.backends[i].Do(func() error {
		for _, port := range []string{":8080", ":8081"} {
			l, err := net.Listen("tcp", port)
			if err != nil {
				return err
			}
			go s.servers[i].Serve(l)
		}
		p, err := net.ListenPacket("udp", ":5353")
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { s.servers[i].Close(); p.Close() })
		go answerLoop(p, name)
		return nil
	}))
}

func answerLoop(p net.PacketConn, name string) {
	b := make([]byte, 2000)
	for {
		n, from, err := p.ReadFrom(b)
		if err != nil {
			return
		}
		p.WriteTo(append([]byte(name+" "), b[:n]...), from)
	}
}

// stream sends as many bytes of a fixed sequence as the query says.
func stream(w http.ResponseWriter, r *http.Request) {
	var n int64
	fmt.Sscan(r.URL.Query().Get("n"), &n)
	io.CopyN(w, sequence(), n)
}

func sequence() io.Reader { return rand.NewChaCha8([32]byte{1}) }

// dial connects the client to a service address.
func (s *site) dial(network, address string) net.Conn {
	s.t.Helper()
	var c net.Conn
	s.must(s.client.Do(func() (err error) {
		c, err = net.DialTimeout(network, address, 20*time.Second)
		return err
	}))
	s.t.Cleanup(func() { c.Close() })
	return c
}

// ask sends an HTTP request on an open connection and returns the first word of the answer.
func ask(c net.Conn) (string, error) {
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	name, _, _ := strings.Cut(string(body), " ")
	return name, err
}
