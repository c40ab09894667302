package stackd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
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
	s.crowd(n, size, n/2)
	st := s.d.Stats().TCP
	t.Logf("%+v", st)
	if st["stalled_peers"] != 0 {
		t.Errorf("%d connections were reset", st["stalled_peers"])
	}
}

// crowdSize returns the bytes of each client of TestCrowdFillsNoRing, each way: MILLRACE_CROWD, or few. make soak has 2 MB.
func crowdSize(t *testing.T) int {
	text := os.Getenv("MILLRACE_CROWD")
	if text == "" {
		return 128 << 10
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("MILLRACE_CROWD: %v", err)
	}
	return n
}

// TestCrowdFillsNoRing has hundreds of clients that start at once and send both ways: the rings hold what comes while the loop
// waits for a core, and the slowest client has a tenth of its bytes when half of all have theirs: it takes ten times the median, at most. The
// first windows of few bytes come in any order, so that these wait for nine clients of ten.
func TestCrowdFillsNoRing(t *testing.T) {
	s := newSite(t, "rings", siteConfig{})
	const n = 600
	size, most := crowdSize(t), n/2
	if size < 1<<20 {
		most = 9 * n / 10
	}
	if least := s.crowd(n, size, most); least < int64(size/10) {
		t.Errorf("when %d clients had all of their %d bytes, one had %d", most, size, least)
	}
	d := s.d.Stats().Devices[0]
	t.Logf("%d packets, %d missed", d.RxPackets, d.RxMissed)
	if d.RxMissed > d.RxPackets/1000 {
		t.Errorf("%d packets of %d came to a full ring", d.RxMissed, d.RxPackets)
	}
}

// crowd has n clients of the Linux host echo size bytes each, all at once. It returns the least that one had got when most of them had all.
func (s *site) crowd(n, size, most int) (least int64) {
	s.t.Helper()
	got, done := make([]atomic.Int64, n), atomic.Int64{}
	look := func() {
		least = int64(size)
		for i := range got {
			least = min(least, got[i].Load())
		}
	}
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
			_, err := io.Copy(counter{&got[i]}, c)
			if sent.Wait(); got[i].Load() != int64(size) || err != nil {
				s.t.Error(errors.Join(fmt.Errorf("client %d: %d of %d bytes came back", i, got[i].Load(), size), err))
			}
			if done.Add(1) == int64(most) {
				look()
			}
		})
	}
	wg.Wait()
	s.t.Logf("when %d clients had %d bytes, the slowest had %d", most, size, least)
	return least
}

// counter counts the bytes that are written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
