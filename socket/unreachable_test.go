package socket

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestAHostThatDoesNotAnswerIsUnreachable dials addresses of the link that no host has. Three requests go
// out, a second apart (RFC 4861 10, RFC 1122 2.3.2.1), and then the packets that wait are reported.
func TestAHostThatDoesNotAnswerIsUnreachable(t *testing.T) {
	for _, loops := range []int{1, 2} {
		t.Run(fmt.Sprint(loops), func(t *testing.T) {
			t.Parallel()
			x := newTestbed(t, testbedConfig{loops: loops})
			var wg sync.WaitGroup
			for _, host := range []string{"198.18.0.99", "2001:db8::99"} {
				for range 4 { // several ports, and so loops
					wg.Go(func() { tcpUnreachable(t, x.a, net.JoinHostPort(host, "80")) })
					wg.Go(func() { udpUnreachable(t, x.a, net.JoinHostPort(host, "53")) })
				}
			}
			wg.Go(func() { unconnectedGetsNoError(t, x.a) })
			wg.Wait()
			x.checkEmpty(t)
		})
	}
}

func tcpUnreachable(t *testing.T, s *Stack, addr string) {
	_, err := s.Dial("tcp", addr)
	checkOpError(t, err, "dial", syscall.EHOSTUNREACH)
}

func udpUnreachable(t *testing.T, s *Stack, addr string) {
	c, err := s.Dial("udp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Errorf("%s: the first write: %v", addr, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err = c.Read(make([]byte, 1))
	checkOpError(t, err, "read", syscall.EHOSTUNREACH)
	// No request goes out for a second: a write says at once what it would meet.
	_, err = c.Write([]byte("x"))
	checkOpError(t, err, "write", syscall.EHOSTUNREACH)
}

func unconnectedGetsNoError(t *testing.T, s *Stack) {
	p, err := s.ListenPacket("udp", ":0")
	if err != nil {
		t.Error(err)
		return
	}
	defer p.Close()
	to := &net.UDPAddr{IP: net.ParseIP("198.18.0.98"), Port: 53}
	if _, err := p.WriteTo([]byte("x"), to); err != nil {
		t.Error(err)
	}
	_ = p.SetReadDeadline(time.Now().Add(3500 * time.Millisecond))
	if _, _, err := p.ReadFrom(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("an unconnected socket: %v", err)
	}
	if _, err := p.WriteTo([]byte("x"), to); err != nil {
		t.Errorf("an unconnected socket: %v", err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
