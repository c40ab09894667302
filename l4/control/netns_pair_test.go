package control_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// Two gateways with one configuration, between the client and the backends of a modes site:
//
//	client eth0 198.18.0.2 ---- front 198.18.0.1 gate  back1 198.18.3.1 ------ eth0 198.18.3.2 b1
//	       eth1 198.18.7.2 ---- front 198.18.7.1 gate2 back1 198.18.23.1 ---- eth1 198.18.23.2
//	                                                   back2 198.18.24.1 ---- eth1 198.18.24.2 b2
//
// The client's route to the service addresses leads to one of them at a time.

// pair is a site with a second gateway.
type pair struct {
	*site
	second *site
}

func newPair(t *testing.T, prefix string) *pair {
	t.Helper()
	s, n := layOutModes(t, prefix, "afxdp")
	p := layOutPair(t, s, n)
	p.startModes()
	p.lead(1)
	p.second.start("http://198.18.1.1:8120/", "http://[2001:db8:1::1]:8150/") // replies to what NAT sends go to the first
	p.lead(0)
	return p
}

// layOutPair adds a second gateway to a site, with the first one's configuration.
func layOutPair(t *testing.T, s *site, n *testnet.Net) *pair {
	t.Helper()
	gate2 := n.Namespace("gate2")
	link := func(host int, dev string, net int) {
		ns := s.client
		if host >= 0 {
			ns = s.backends[host]
		}
		s.must(n.Link(ns, "eth1", gate2, dev))
		s.must(ns.NoOffload("eth1"))
		s.must(gate2.NoOffload(dev))
		s.must(ns.Up("eth1", fmt.Sprintf("198.18.%d.2/24", net), fmt.Sprintf("2001:db8:%d::2/64", net)))
		s.must(gate2.Up(dev, fmt.Sprintf("198.18.%d.1/24", net), fmt.Sprintf("2001:db8:%d::1/64", net)))
	}
	link(-1, "front", 7)
	for i := range s.backends {
		link(i, fmt.Sprintf("back%d", i+1), 23+i)
		s.must(gate2.Route(fmt.Sprintf("198.18.%d.2/32", 3+i), fmt.Sprintf("198.18.%d.2", 23+i)))
		s.must(gate2.Route(fmt.Sprintf("2001:db8:%d::2/128", 3+i), fmt.Sprintf("2001:db8:%d::2", 23+i)))
	}
	s.must(gate2.Route("198.18.0.2/32", "198.18.7.2"))
	s.must(gate2.Route("2001:db8::2/128", "2001:db8:7::2"))
	return &pair{site: s, second: &site{t: t, client: s.client, gate: gate2, backends: s.backends, file: s.file}}
}

// lead has the client's packets to the service addresses go to one of the gateways, from the addresses
// that they had before.
func (p *pair) lead(to int) {
	p.t.Helper()
	four, six, dev := "198.18.0.1", "2001:db8::1", "eth0"
	if to == 1 {
		four, six, dev = "198.18.7.1", "2001:db8:7::1", "eth1"
	}
	_, err := p.client.Run("ip", "route", "replace", "198.18.1.1/32", "via", four, "dev", dev, "src", "198.18.0.2")
	p.must(err)
	_, err = p.client.Run("ip", "-6", "route", "replace", "2001:db8:1::1/128", "via", six, "dev", dev, "src", "2001:db8::2")
	p.must(err)
}

// talk sends blocks on a connection and wants them back, at a pace, until done is closed; then it ends the
// connection and waits for the last of them.
func talk(c net.Conn, seed byte, done <-chan struct{}) (sent int, err error) {
	block := bytes.Repeat([]byte{seed}, 3000) // more than a segment
	got := make(chan error, 1)
	total := make(chan int, 1)
	go func() {
		n, b := 0, make([]byte, 1<<16)
		for {
			m, err := c.Read(b)
			n += m
			if i := bytes.IndexFunc(b[:m], func(r rune) bool { return r != rune(seed) }); i >= 0 {
				err = fmt.Errorf("byte %d is another connection's", n-m+i)
			}
			if errors.Is(err, io.EOF) {
				err = nil
				total <- n
				got <- err
				return
			}
			if err != nil {
				total <- n
				got <- err
				return
			}
		}
	}()
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	for {
		select {
		case <-done:
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				return sent, err
			}
			n, err := <-total, <-got
			if err == nil && n != sent {
				err = fmt.Errorf("%d of %d bytes came back", n, sent)
			}
			return sent, err
		case <-time.After(5 * time.Millisecond):
		}
		n, err := c.Write(block)
		sent += n
		if err != nil {
			return sent, err
		}
	}
}

// TestConnectionsMoveBetweenGateways moves many open connections from one gateway to the other and back while
// they carry data. Backends answer clients directly, so none breaks.
func TestConnectionsMoveBetweenGateways(t *testing.T) {
	t.Parallel()
	p := newPair(t, "mr-gwpair")
	const conns, moves = 200, 12
	done := make(chan struct{})
	var wg sync.WaitGroup
	errs := make(chan error, conns)
	total := make(chan int, conns)
	hosts := []string{"198.18.1.1", "[2001:db8:1::1]"}
	direct := passages[2:]
	for i := range conns {
		port := direct[i/2%len(direct)].port + 3
		c := p.dial("tcp", fmt.Sprintf("%s:%d", hosts[i%2], port))
		wg.Go(func() {
			n, err := talk(c, byte(i%127)+1, done)
			total <- n
			if err != nil {
				errs <- fmt.Errorf("connection %d from %v to %v: %w", i, c.LocalAddr(), c.RemoteAddr(), err)
			}
		})
	}
	for i := range moves {
		time.Sleep(200 * time.Millisecond)
		p.lead((i + 1) % 2)
	}
	time.Sleep(200 * time.Millisecond)
	close(done)
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	bytes := 0
	for range conns {
		bytes += <-total
	}
	t.Logf("%d bytes there and back on %d connections over %d moves", bytes, conns, moves)
	first, second := p.stop(), p.second.stop()
	for i, sum := range []daemon.Summary{first, second} {
		n := uint64(0)
		for _, s := range sum.Gateway.Services {
			for _, b := range s.Backends {
				n += b.Opened
			}
		}
		// They began here, or were adopted with their first packet here. On a busy machine a few may wait for a
		// retransmission whenever this gateway has its turn.
		if n < conns*9/10 {
			t.Errorf("gateway %d has seen %d connections", i+1, n)
		}
	}
}
