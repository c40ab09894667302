package control_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// soakEnv is how long the configuration changes under load, such as 60s; a few seconds without it.
const soakEnv = "MILLRACE_SOAK"

// soaked returns the size of a test, which make soak makes larger.
func soaked(usual, long int64) int64 {
	if os.Getenv(soakEnv) != "" {
		return long
	}
	return usual
}

// churnConfig is a configuration with b1 and b2 as they always are, and x and y, which serve on
// another port of b2, in one of many forms: with any weight and state, or absent. A few services come
// and go as well.
func churnConfig(rng *rand.Rand) string {
	var s strings.Builder
	s.WriteString(`
devices: [{name: front, driver: afxdp}, {name: back1, driver: afxdp}, {name: back2, driver: afxdp}]
snat: [198.18.2.1]
admin: {socket: ""}
services:
  - name: web
    address: 198.18.1.1:80
    slow_start: 500ms
    backends:
      - {name: b1, address: 198.18.3.2:8080, weight: 5}
      - {name: b2, address: 198.18.4.2:8080, weight: 5}
`)
	for i, name := range []string{"x", "y"} {
		if rng.IntN(3) > 0 {
			state := []string{"active", "filling", "draining"}[rng.IntN(3)]
			fmt.Fprintf(&s, "      - {name: %s, address: 198.18.%d.2:8081, weight: %d, state: %s}\n", name, 3+i, rng.IntN(11), state)
		}
	}
	for i := range 20 {
		if rng.IntN(2) == 0 {
			fmt.Fprintf(&s, "  - {name: other%d, address: 198.18.1.2:%d, backends: [{name: b1, address: 198.18.3.2:%d}]}\n", i, 1000+i, 2000+i)
		}
	}
	return s.String()
}

// load is clients that ask without end.
type load struct {
	site   *site
	end    chan struct{}
	wg     sync.WaitGroup
	asked  atomic.Int64
	opened atomic.Int64
	mu     sync.Mutex
	errs   []error
}

// failed notes an error; false when there is none, or the end is near.
func (l *load) failed(what string, err error) bool {
	if err == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Errorf("%s: %w", what, err))
	return true
}

// over reports whether the test ends.
func (l *load) over() bool {
	select {
	case <-l.end:
		return true
	default:
		return false
	}
}

// open connects to the service.
func (l *load) open() (c net.Conn, err error) {
	err = l.site.client.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", "198.18.1.1:80", 10*time.Second)
		return err
	})
	l.opened.Add(1)
	return c, err
}

// stay asks on one connection, which must reach the same backend each time.
func (l *load) stay(pause time.Duration) {
	c, err := l.open()
	if l.failed("open", err) {
		return
	}
	defer c.Close()
	first := ""
	for !l.over() {
		name, err := ask(c)
		if l.failed("ask "+first, err) {
			return
		}
		if first == "" {
			first = name
		}
		if name != first {
			l.failed("ask", fmt.Errorf("%s answers for %s", name, first))
		}
		l.asked.Add(1)
		time.Sleep(pause)
	}
}

// come opens connections that ask twice.
func (l *load) come() {
	for !l.over() {
		c, err := l.open()
		if l.failed("open", err) {
			return
		}
		for range 2 {
			if name, err := ask(c); l.failed("ask "+name, err) {
				c.Close()
				return
			}
			l.asked.Add(1)
		}
		c.Close()
	}
}

// The backends of a service, their weights and states, and other services change ten times a second
// under load: no connection breaks and none is refused. Also those of backends that are gone go on
// (`removed: keep`), for their servers do.
func TestNoConnectionBreaksWhileTheConfigurationChanges(t *testing.T) {
	t.Parallel()
	lasts := 6 * time.Second
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakEnv, err)
		}
	}
	s, _ := layOut(t, "mr-gwchurn")
	for i := range s.backends {
		s.listen(i)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	write := func() { // at once: the gateway must not read half a file
		s.must(os.WriteFile(s.file+".new", []byte(churnConfig(rng)), 0o644))
		s.must(os.Rename(s.file+".new", s.file))
	}
	write()
	s.must(s.client.Sysctl("net.ipv4.tcp_tw_reuse", "1")) // or the client is out of ports in a minute
	s.start("http://198.18.1.1/")
	l := &load{site: s, end: make(chan struct{})}
	for range 40 {
		l.wg.Go(func() { l.stay(20 * time.Millisecond) })
	}
	for range 4 {
		l.wg.Go(l.come)
	}
	reloads, early, peak := 0, 0, 0
	begin := time.Now()
	for now := begin; now.Before(begin.Add(lasts)); reloads++ {
		time.Sleep(100 * time.Millisecond)
		if peak, now = s.peakMemory(), time.Now(); now.Before(begin.Add(lasts / 3)) {
			early = peak
		}
		write()
		s.must(s.cmd.Process.Signal(syscall.SIGHUP))
	}
	close(l.end)
	l.wg.Wait()
	for _, err := range l.errs {
		t.Error(err)
	}
	s.stop()
	if n := strings.Count(s.log.String(), "msg=reload error=<nil>"); n < reloads/2 || strings.Count(s.log.String(), "msg=reload ") != n {
		t.Errorf("%d reloads, %d of which went well", reloads, n)
	}
	t.Logf("%d reloads in %v; %d connections, %d requests; peak memory %d MiB, %d after a third of the time",
		reloads, lasts, l.opened.Load(), l.asked.Load(), peak, early)
	if peak > early+early/4 {
		t.Errorf("memory grows: the peak was %d MiB after a third of the time, and is %d", early, peak)
	}
}

// peakMemory returns the most memory that the gateway has had, in MiB.
func (s *site) peakMemory() (mib int) {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	s.must(err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	_, err = fmt.Sscan(rest, &mib)
	s.must(err)
	return mib >> 10
}
