package onenode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// mayDrop returns how many packets may be dropped for a reason. Each is one that its sender sends again, and
// before or after the requests that are counted.
func mayDrop(why string, retransmitted uint64) uint64 {
	switch why {
	case "no_neighbor": // the first requests, before the kernel has resolved the backends
		return 10
	// A loss probe of a client whose acknowledgement came late is a duplicate (RFC 8985 7), also that of a FIN whose
	// connection has ended since.
	case "no_socket":
		return retransmitted
	// So is, to the host, an acknowledgement that data overtook: a veth has a backlog for each CPU, and its sender
	// may move to another CPU between two packets.
	case "sequence":
		return retransmitted + 10
	}
	return 0
}

// TestOneInterfaceServesAGatewayAHostAndTheKernel has all three at work at once, moves an address from the
// gateway to the host and back, and kills the process.
func TestOneInterfaceServesAGatewayAHostAndTheKernel(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "ip", "ping")
	for _, queues := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d queues", queues), func(t *testing.T) {
			s := newSite(t, fmt.Sprintf("mr-one%d", queues), queues)
			s.start()
			s.serveUnderLoad(queues)
			s.start()
			s.kill()
		})
	}
}

// serveUnderLoad has clients at work while an address moves from the gateway to the host and back.
func (s *site) serveUnderLoad(queues int) {
	t := s.t
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // the load lasts as long as the moves, on a busy machine too
	defer cancel()
	before := s.retransmitted()
	l := s.newLoad(ctx)
	l.start()
	l.several("moving, connected to the gateway", movingAddr, "b1", "b2")
	l.several("back, connected to the host before the gateway had a service there", backAddr, "host")
	l.anew("moving, new connections", movingAddr+":8080", "b1", "b2", "host")
	l.anew("back, new connections", backAddr+":8080", "b1", "b2", "host")
	time.Sleep(500 * time.Millisecond)

	s.reload(s.second)
	s.servedBy(movingAddr+":8080", "host")
	s.servedBy(backAddr+":8080", "b1", "b2")
	l.several("moving, connected to the host", movingAddr, "host")
	l.several("back, connected to the gateway", backAddr, "b1", "b2")
	time.Sleep(1500 * time.Millisecond) // more than one update of the claims
	s.servedBy(movingAddr+":8080", "host")

	s.reload(s.first)
	s.servedBy(movingAddr+":8080", "b1", "b2")
	s.servedBy(backAddr+":8080", "host")
	cancel()
	l.wait()
	sum := s.stop()
	again := s.retransmitted() - before
	for why, n := range sum.Counters.Dropped {
		if n > mayDrop(why, again) {
			t.Errorf("%d packets were dropped as %s; clients and backends have sent %d segments again", n, why, again)
		}
	}
	for i, loop := range sum.Loops {
		if loop.Received == 0 {
			t.Errorf("loop %d has received nothing", i)
		}
		if queues > 1 && (loop.HandedOver == 0 || loop.TakenOver == 0) {
			t.Errorf("loop %d: %d packets handed over, %d taken over", i, loop.HandedOver, loop.TakenOver)
		}
	}
}

// retransmitted returns how many segments the clients and backends have sent again.
func (s *site) retransmitted() uint64 {
	s.t.Helper()
	var b []byte
	s.must(s.client.Do(func() (err error) {
		b, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	}))
	names, values := []string(nil), []string(nil)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == "Tcp:" {
			names, values = values, f
		}
	}
	n, err := strconv.ParseUint(values[slices.Index(names, "RetransSegs")], 10, 64)
	s.must(err)
	return n
}

// servedBy asks several times, on new connections, who serves an address.
func (s *site) servedBy(address string, servers ...string) {
	s.t.Helper()
	for range 20 {
		name, err := s.get(address, answerLimit)
		s.must(err)
		if err := oneOf(name, servers); err != nil {
			s.t.Fatal(err)
		}
	}
}

// kill kills the process under load, and checks that the kernel has its interface: a connection of the
// kernel outlives the process and the restart.
func (s *site) kill() {
	t := s.t
	t.Helper()
	if link := s.run(s.node, "ip", "link", "show", "gw0"); !strings.Contains(link, "xdp") {
		s.t.Errorf("no program is attached while the process runs: %s", link)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	kernel := s.newLoad(ctx)
	kernel.echo("kernel, TCP, when the process is killed", "tcp", kernelAddr+":22")
	lost := s.newLoad(ctx)
	lost.limit = 500 * time.Millisecond // its last requests get no answer
	lost.anew("gateway", gatewayAddr+":80", "b1", "b2")
	lost.anew("host", hostAddr+":80", "host")
	held := map[string]*httpConn{}
	for address, server := range map[string]string{gatewayAddr + ":80": "b", movingAddr + ":8080": "b", hostAddr + ":80": "host"} {
		c, err := s.open(address, answerLimit)
		s.must(err)
		defer c.Close()
		name, err := c.ask()
		if err != nil || !strings.HasPrefix(name, server) {
			t.Fatalf("%s: served by %q: %v", address, name, err)
		}
		held[address] = c
	}
	time.Sleep(200 * time.Millisecond)
	s.must(s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	s.kernelOnly()
	s.start()                      // at once
	for address, c := range held { // nothing knows their connections any more: the gateway says so, or the host
		if name, err := c.ask(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: a connection from before the restart: %q, %v", address, name, err)
		}
	}
	cancel()
	kernel.wait()
	lost.all.Wait()
	s.stop()
	s.kernelOnly()
}

// kernelOnly checks that the kernel has the interface for itself.
func (s *site) kernelOnly() {
	s.t.Helper()
	if link := s.run(s.node, "ip", "link", "show", "gw0"); strings.Contains(link, "xdp") {
		s.t.Errorf("a program is still attached: %s", link)
	}
	s.run(s.client, "ping", "-n", "-c", "3", "-i", "0.05", "-W", "20", kernelAddr)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	l := s.newLoad(ctx)
	l.echo("kernel, TCP", "tcp", kernelAddr+":22")
	l.wait()
}
