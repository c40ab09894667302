package health

import (
	"io"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// ours returns the stacks of goroutines that run code of this package beside the test's own.
func ours() (stacks []string) {
	buf := make([]byte, 1<<20)
	for s := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(s, "gateway/health.") && !strings.Contains(s, "_test.go") {
			stacks = append(stacks, s)
		}
	}
	return stacks
}

// descriptors returns the number of open files.
func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Close is called while probes of every type hang: nothing of them is left.
func TestCloseLeavesNoGoroutineAndNoDescriptor(t *testing.T) {
	hang := listen(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	late := httptest.NewServer(&site{})
	t.Cleanup(late.Close)
	mute := answers(t, func(string) []byte { return nil })
	sleeping := commandOf(t, "sleep 1000")
	var list []Watch
	add := func(typ Type, at string) {
		c := New()
		c.Type, c.Interval, c.Timeout = typ, time.Second, time.Second
		c.Command, c.UDP.Send, c.HTTP.Path = sleeping.Command, []byte("x"), "/late"
		list = append(list, watchOf(len(list), at, c))
	}
	for range 3 {
		add(TypeTCP, hang)
		add(TypeHTTP, hang)
		add(TypeHTTPS, hang)
		add(TypeHTTP, late.Listener.Addr().String())
		add(TypeUDP, mute)
		add(TypeCommand, first)
	}
	before := descriptors(t)
	for range 3 {
		k := NewChecker(Options{})
		k.Set(list)
		eventually(t, "probes that hang", func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			n := 0
			for _, l := range k.limiters {
				n += l.running
			}
			return n >= 5
		})
		k.Close()
	}
	eventually(t, "no goroutine", func() bool { return len(ours()) == 0 })
	eventually(t, "no descriptor", func() bool { return descriptors(t) <= before+1 })
}
