package onenode

import (
	"bufio"
	"encoding/json"
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

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// One link, 198.18.0.0/16, with the node's only interface at one end and everybody else at the other:
//
//	client   198.18.0.2                    the kernel's 198.18.0.1, 2001:db8::1
//	backends 198.18.0.11 --eth0 ---- gw0-- the gateway's 198.18.1.1, 198.18.1.9 (SNAT), 198.18.1.3:81 and at times :8080; :54 UDP
//	         198.18.0.12                   the host's 198.18.1.2, 198.18.1.3 and 198.18.1.4
const (
	kernelAddr  = "198.18.0.1"
	kernelAddr6 = "2001:db8::1"
	gatewayAddr = "198.18.1.1"
	hostAddr    = "198.18.1.2"
	movingAddr  = "198.18.1.3" // the gateway's, then the host's, then the gateway's
	backAddr    = "198.18.1.4" // the other way round
)

const gatewayConfig = `
devices: [{name: gw0, driver: afxdp, queues: %d}]
snat: [198.18.1.9]
admin: {socket: ""}
services:
  - name: web
    address: 198.18.1.1:80
    backends: [{name: b1, address: 198.18.0.11:8080}, {name: b2, address: 198.18.0.12:8080}]
    health: {interval: 1s, timeout: 1s, rise: 1, fall: 2}
  - name: echo
    protocol: udp
    address: 198.18.1.1:53
    backends: [{name: b1, address: 198.18.0.11:5353}, {name: b2, address: 198.18.0.12:5353}]
  - name: echo-shared
    protocol: udp
    address: 198.18.1.3:54
    backends: [{name: b1, address: 198.18.0.11:5353}, {name: b2, address: 198.18.0.12:5353}]
  - name: shared
    address: 198.18.1.3:81
    backends: [{name: b1, address: 198.18.0.11:8080}, {name: b2, address: 198.18.0.12:8080}]
`

const movingConfig = `
  - name: moving
    address: %s:8080
    backends: [{name: b1, address: 198.18.0.11:8080}, {name: b2, address: 198.18.0.12:8080}]
`

// site is the network above.
type site struct {
	t             *testing.T
	client, node  *testnet.Namespace
	first, second string // configurations

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	log testnet.Log
}

func newSite(t *testing.T, prefix string, queues int) *site {
	t.Helper()
	n := testnet.For(t, prefix)
	s := &site{t: t, client: n.Namespace("client"), node: n.Namespace("node")}
	s.must(n.LinkQueues(s.client, "eth0", s.node, "gw0", queues))
	s.must(s.client.NoOffload("eth0"))
	s.must(s.node.NoOffload("gw0"))
	s.must(s.client.Up("eth0", "198.18.0.2/16", "198.18.0.11/16", "198.18.0.12/16", "2001:db8::2/64"))
	s.must(s.node.Up("gw0", kernelAddr+"/16", kernelAddr6+"/64"))
	s.backend("198.18.0.11", "b1")
	s.backend("198.18.0.12", "b2")
	s.kernelEcho()
	s.first = s.file("first.yaml", fmt.Sprintf(gatewayConfig+movingConfig, queues, movingAddr))
	s.second = s.file("second.yaml", fmt.Sprintf(gatewayConfig+movingConfig, queues, backAddr))
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) run(ns *testnet.Namespace, name string, args ...string) string {
	s.t.Helper()
	out, err := ns.Run(name, args...)
	s.must(err)
	return out
}

func (s *site) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), name)
	s.must(os.WriteFile(path, []byte(text), 0o644))
	return path
}

// backend serves HTTP on 8080 and echoes datagrams on 5353.
func (s *site) backend(address, name string) {
	s.t.Helper()
	server := &http.Server{Handler: respond(name)}
	s.must(s.client.Do(func() error {
		l, err := net.Listen("tcp", address+":8080")
		if err != nil {
			return err
		}
		go server.Serve(l)
		p, err := net.ListenPacket("udp", address+":5353")
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { server.Close(); p.Close() })
		go echoDatagrams(p)
		return nil
	}))
}

func echoDatagrams(p net.PacketConn) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := p.ReadFrom(b)
		if err != nil {
			return
		}
		p.WriteTo(b[:n], from)
	}
}

// kernelEcho echoes connections to port 22 of the node's own address, as sshd would be there.
func (s *site) kernelEcho() {
	s.t.Helper()
	s.must(s.node.Do(func() error {
		return testnet.ServeTCP(s.t, kernelAddr+":22", testnet.Echo)
	}))
}

// start runs the process, and waits until it serves.
func (s *site) start() {
	s.t.Helper()
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), configEnv+"="+s.first)
	s.cmd.Stderr = &s.log
	in, err := s.cmd.StdinPipe()
	s.must(err)
	out, err := s.cmd.StdoutPipe()
	s.must(err)
	s.in, s.out = in, bufio.NewReader(out)
	s.must(s.node.Start(s.cmd))
	cmd := s.cmd
	s.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line := s.line(); line != "ready" {
		s.t.Fatalf("the process says %q: %s", line, s.log.String())
	}
	for _, address := range []string{gatewayAddr + ":80", hostAddr + ":80", movingAddr + ":8080"} {
		s.served(address)
	}
}

func (s *site) line() string {
	line, err := s.out.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// served waits until HTTP is served at an address: health checks and next hops take a moment.
func (s *site) served(address string) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err = s.get(address, time.Second); err == nil {
			return
		}
	}
	s.t.Fatalf("%s is not served: %v\n%s", address, err, s.log.String())
}

// reload gives the gateway a configuration.
func (s *site) reload(file string) {
	s.t.Helper()
	_, err := fmt.Fprintln(s.in, file)
	s.must(err)
	if line := s.line(); line != "" {
		s.t.Fatalf("reload: %s", line)
	}
}

// stop ends the process and checks that every packet has met its end.
func (s *site) stop() (sum summary) {
	s.t.Helper()
	time.Sleep(50 * time.Millisecond) // the last packets of the clients
	s.in.Close()
	err := json.NewDecoder(s.out).Decode(&sum)
	if wait := s.cmd.Wait(); wait != nil || err != nil {
		s.t.Fatalf("the process ended with %v, %v: %s", wait, err, s.log.String())
	}
	total := sum.Counters.Forwarded + sum.Counters.Delivered
	for _, n := range sum.Counters.Dropped {
		total += n
	}
	if came := sum.Counters.Received + sum.Counters.Originated; came != total {
		s.t.Errorf("received and originated %d packets, %d have met their end", came, total)
	}
	if rx := sum.Devices[0].RxPackets; rx != sum.Counters.Received {
		s.t.Errorf("the driver received %d packets, the loops %d", rx, sum.Counters.Received)
	}
	s.t.Logf("%smissed by the interface %d", sum.Counters.Balance(), sum.Devices[0].RxMissed)
	return sum
}
