package stackd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TestCrowdBeyondTheBudget has more clients of the kernel echo than the memory of the host serves at once: none is reset, and every byte
// comes back before long.
func TestCrowdBeyondTheBudget(t *testing.T) {
	const n, size = 300, 256 << 10
	s := newSite(t, "crowd", siteConfig{
		config: func(c *Config) { c.TCP.Memory = 8 << 20 },
		// BBR takes the drops of veth's short ring for a path of 25 kbit/s, and keeps that for minutes.
		sysctl: map[string]string{"net.ipv4.tcp_congestion_control": "reno"},
	})
	s.crowd(n, size)
	st := s.d.Stats().TCP
	t.Logf("%+v", st)
	if st["stalled_peers"] != 0 {
		t.Errorf("%d connections were reset", st["stalled_peers"])
	}
}

// TestCrowdFillsNoRing has hundreds of clients that start at once and send both ways: the rings hold what comes while the loop
// waits for a core.
func TestCrowdFillsNoRing(t *testing.T) {
	s := newSite(t, "rings", siteConfig{})
	s.crowd(600, 128<<10)
	d := s.d.Stats().Devices[0]
	t.Logf("%d packets, %d missed", d.RxPackets, d.RxMissed)
	if d.RxMissed > d.RxPackets/1000 {
		t.Errorf("%d packets of %d came to a full ring", d.RxMissed, d.RxPackets)
	}
}

// crowd has n clients of the Linux host echo size bytes each, all at once.
func (s *site) crowd(n, size int) {
	s.t.Helper()
	end := time.Now().Add(170 * time.Second)
	conns := make([]net.Conn, n)
	for i := range conns {
		err := s.linux.Do(func() (err error) {
			conns[i], err = net.DialTimeout("tcp", net.JoinHostPort(host4, "7"), 5*time.Second)
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
		_ = conns[i].SetDeadline(end)
	}
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			defer func() { _ = c.Close() }()
			var sent sync.WaitGroup
			sent.Go(func() {
				if _, err := c.Write(make([]byte, size)); err != nil {
					s.t.Errorf("client %d: %v", i, err)
				}
				_ = c.(*net.TCPConn).CloseWrite()
			})
			k, err := io.Copy(io.Discard, c)
			if sent.Wait(); k != int64(size) || err != nil {
				s.t.Error(errors.Join(fmt.Errorf("client %d: %d of %d bytes came back", i, k, size), err))
			}
		})
	}
	wg.Wait()
}
