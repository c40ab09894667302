package stackd

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"
)

// The interface gets a smaller MTU and another link address under transfers: connections go on with segments that fit,
// datagrams that do not are fragmented, neighbours learn the address, and a larger MTU is used again.
func TestMTUAndLinkAddressChangeAtRunTime(t *testing.T) {
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := newSite(t, "mtu"+driver[2:4], siteConfig{driver: driver})
			for _, host := range []string{host4, host6} {
				c, err := s.dial("tcp", net.JoinHostPort(host, "7"))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				s.exchange(c, 1<<20, nil)
				s.exchange(c, 8<<20, func() {
					mtu(t, 1300, s.linux, "eth0")
					mtu(t, 1300, s.ours, "st0")
				})
				s.datagram(host, 1460)
				s.seen(fmt.Sprintf("%s pmtu 1300", host), func() bool { return s.pmtu(c) == 1300 })

				s.run("ip", "link", "show", "eth0")
				if out, err := s.ours.Run("ip", "link", "set", "st0", "address", "02:00:00:00:09:77"); err != nil {
					t.Fatal(out, err)
				}
				s.exchange(c, 1<<20, nil)

				mtu(t, 1500, s.linux, "eth0")
				mtu(t, 1500, s.ours, "st0")
				s.seen(fmt.Sprintf("%s pmtu 1500", host), func() bool { return s.pmtu(c) == 1500 })
				s.exchange(c, 1<<20, nil)
				s.datagram(host, 1400)
				if out, err := s.ours.Run("ip", "link", "set", "st0", "address", "02:00:00:00:09:78"); err != nil {
					t.Fatal(out, err)
				}
			}
		})
	}
}

// exchange sends n bytes to an echo service on c and compares what comes back. during is called when half has come.
func (s *site) exchange(c net.Conn, n int64, during func()) {
	s.t.Helper()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(pattern(0, n))
		sent <- err
	}()
	got := int64(0)
	for buf := make([]byte, 64<<10); got < n; {
		k, err := c.Read(buf)
		if err != nil {
			s.t.Fatalf("%s: %d of %d bytes: %v", c.RemoteAddr(), got, n, err)
		}
		if !bytes.Equal(buf[:k], pattern(got, int64(k))) {
			s.t.Fatalf("%s: other bytes behind %d", c.RemoteAddr(), got)
		}
		if got += int64(k); during != nil && got > n/2 {
			during()
			during = nil
		}
	}
	if err := <-sent; err != nil {
		s.t.Fatal(err)
	}
}

// pattern returns n bytes of a stream from a position on.
func pattern(at, n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		x := at + int64(i)
		b[i] = byte(x*7 ^ x>>11)
	}
	return b
}

// datagram has the echo service return a datagram of n bytes.
func (s *site) datagram(host string, n int) {
	s.t.Helper()
	c, err := s.dial("udp", net.JoinHostPort(host, "7"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 2000)
	for end := time.Now().Add(20 * time.Second); ; {
		_, _ = c.Write(make([]byte, n))
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if k, err := c.Read(buf); err == nil && k == n {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: no datagram of %d bytes comes back", host, n)
		}
	}
}

// pmtu returns the path MTU of the host's end of c.
func (s *site) pmtu(c net.Conn) int {
	for _, x := range s.d.Sockets(Query{Limit: 1000}).Sockets {
		if x.Remote.String() == c.LocalAddr().String() && x.TCP != nil {
			return x.TCP.PathMTU
		}
	}
	return 0
}

// seen waits until a condition is true.
func (s *site) seen(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("never: %s", what)
		}
	}
}
