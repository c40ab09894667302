package onenode

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// answerLimit is how long a client waits for an answer, on a machine that may be busy with other tests. That
// no packet is lost is seen in the counters, not in time.
const answerLimit = 20 * time.Second

// dial connects from the client.
func (s *site) dial(network, address string, limit time.Duration) (c net.Conn, err error) {
	err = s.client.Do(func() (err error) {
		c, err = net.DialTimeout(network, address, limit)
		return err
	})
	return c, err
}

// httpConn is an HTTP connection of the client.
type httpConn struct {
	net.Conn
	r     *bufio.Reader
	limit time.Duration // for an answer
}

func (s *site) open(address string, limit time.Duration) (*httpConn, error) {
	c, err := s.dial("tcp", address, limit)
	if err != nil {
		return nil, err
	}
	return &httpConn{c, bufio.NewReader(c), limit}, nil
}

// ask sends a request and returns who answers.
func (c *httpConn) ask() (string, error) {
	c.SetDeadline(time.Now().Add(c.limit))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// get asks on a connection of its own.
func (s *site) get(address string, limit time.Duration) (string, error) {
	c, err := s.open(address, limit)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.ask()
}

// load is clients at work.
type load struct {
	site     *site
	ctx      context.Context
	limit    time.Duration // for an answer
	all      sync.WaitGroup
	mu       sync.Mutex
	failures []string
	requests map[string]*atomic.Uint64 // by client
}

func (s *site) newLoad(ctx context.Context) *load {
	return &load{site: s, ctx: ctx, limit: answerLimit, requests: map[string]*atomic.Uint64{}}
}

func (l *load) fail(who string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, fmt.Sprintf("%s after %d requests: %v", who, l.requests[who].Load(), err))
}

// counter returns the count of a client's requests.
func (l *load) counter(who string) *atomic.Uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests[who] = new(atomic.Uint64)
	return l.requests[who]
}

// repeat calls request once and then until the load ends, or it fails.
func (l *load) repeat(who string, request func() error) {
	n := l.counter(who)
	l.all.Go(func() {
		for more := true; more; more = l.ctx.Err() == nil {
			if err := request(); err != nil {
				l.fail(who, err)
				return
			}
			n.Add(1)
		}
	})
}

// anew asks on a new connection for each request.
func (l *load) anew(who, address string, servers ...string) {
	l.repeat(who, func() error {
		name, err := l.site.get(address, l.limit)
		return errors.Join(err, oneOf(name, servers))
	})
}

// keepAlive asks on one connection.
func (l *load) keepAlive(who, address string, servers ...string) {
	c, err := l.site.open(address, l.limit)
	l.site.must(err)
	l.site.t.Cleanup(func() { c.Close() })
	l.repeat(who, func() error {
		name, err := c.ask()
		return errors.Join(err, oneOf(name, servers))
	})
}

// several asks on several connections to port 8080 of an address, whose hashes name different loops.
func (l *load) several(who, addr string, servers ...string) {
	for i := range 6 {
		l.keepAlive(fmt.Sprintf("%s, %d", who, i), addr+":8080", servers...)
	}
}

func oneOf(name string, servers []string) error {
	for _, s := range servers {
		if s == name {
			return nil
		}
	}
	return fmt.Errorf("served by %q, not by %q", name, servers)
}

// echo sends what an echo server sends back, a datagram or a segment at a time.
func (l *load) echo(who, network, address string) {
	c, err := l.site.dial(network, address, l.limit)
	l.site.must(err)
	l.site.t.Cleanup(func() { c.Close() })
	sent, got := make([]byte, 500), make([]byte, 500)
	round := byte(0)
	l.repeat(who, func() error {
		round++
		for i := range sent {
			sent[i] = round
		}
		c.SetDeadline(time.Now().Add(answerLimit))
		if _, err := c.Write(sent); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(sent, got) {
			return fmt.Errorf("echo %d: %v", round, err)
		}
		return nil
	})
}

var pingLoss = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// ping pings an address for three seconds.
func (l *load) ping(address string) {
	who := "ping " + address
	n := l.counter(who)
	cmd := exec.Command("ping", "-n", "-i", "0.05", "-c", "60", "-W", "20", address)
	var out strings.Builder
	cmd.Stdout = &out
	l.site.must(l.site.client.Start(cmd))
	l.all.Go(func() {
		_ = cmd.Wait() // it waits for the last answers
		var sent, received uint64
		if m := pingLoss.FindStringSubmatch(out.String()); m != nil {
			fmt.Sscan(m[1], &sent)
			fmt.Sscan(m[2], &received)
		}
		n.Store(received)
		if received == 0 || sent != received {
			l.fail(who, errors.New(out.String()))
		}
	})
}

// start begins what clients do all the time.
func (l *load) start() {
	l.keepAlive("gateway, kept alive", gatewayAddr+":80", "b1", "b2")
	l.keepAlive("host, kept alive", hostAddr+":80", "host")
	l.anew("gateway, new connections", gatewayAddr+":80", "b1", "b2")
	l.anew("host, new connections", hostAddr+":80", "host")
	l.anew("gateway, at an address of the host", movingAddr+":81", "b1", "b2")
	l.echo("gateway, UDP", "udp", gatewayAddr+":53")
	l.echo("kernel, TCP", "tcp", kernelAddr+":22")
	l.ping(kernelAddr)
	l.ping(kernelAddr6)
	l.ping(gatewayAddr)
	l.ping(hostAddr)
}

// wait ends with the load's context, and reports failures.
func (l *load) wait() {
	l.site.t.Helper()
	l.all.Wait()
	for _, f := range l.failures {
		l.site.t.Error(f)
	}
	for who, n := range l.requests {
		l.site.t.Logf("%-30s %6d requests", who, n.Load())
		if n.Load() == 0 {
			l.site.t.Errorf("%s: nothing was served", who)
		}
	}
}
