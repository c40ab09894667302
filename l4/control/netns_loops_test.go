package control_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The configuration of the site on several queues, with a UDP service whose backends see their
// clients, too.
const loopsConfig = `
  - name: seen
    protocol: udp
    source: client
    address: [198.18.1.1:54, "[2001:db8:1::1]:54"]
    backends:
      - {name: b1, address: [198.18.3.2:5353, "[2001:db8:3::2]:5353"]}
      - {name: b2, address: [198.18.4.2:5353, "[2001:db8:4::2]:5353"]}
metrics: {listen: 127.0.0.1:9100}
admin: {socket: ""}
`

// TestLoopsServeWhateverQueueAPacketComesBy runs loops on interfaces with several queues. A veth picks
// the queue by a hash of its own, which differs for the two directions of a connection.
func TestLoopsServeWhateverQueueAPacketComesBy(t *testing.T) {
	t.Parallel()
	for _, queues := range []int{2, 4} {
		t.Run(fmt.Sprintf("%d queues", queues), func(t *testing.T) {
			s, _ := layOutQueues(t, fmt.Sprintf("mr-gwq%d", queues), queues)
			for i := range s.backends {
				s.listen(i)
			}
			all := strings.ReplaceAll(fmt.Sprintf(siteConfig, "afxdp", ""), "driver: afxdp", "driver: afxdp, queues: auto") + loopsConfig
			s.must(os.WriteFile(s.file, []byte(all), 0o644))
			s.start("http://198.18.1.1/", "http://[2001:db8:1::1]/", "http://198.18.1.1:81/", "http://[2001:db8:1::1]:81/")

			before := s.opened()
			const each = 150 // of TCP and of UDP, for each address
			broken := s.talk("tcp", "198.18.1.1:80", each) + s.talk("tcp", "[2001:db8:1::1]:80", each) +
				s.talk("tcp", "198.18.1.1:81", each) + s.talk("tcp", "[2001:db8:1::1]:81", each) +
				s.talk("udp", "198.18.1.1:53", each) + s.talk("udp", "[2001:db8:1::1]:53", each) +
				s.talk("udp", "198.18.1.1:54", each) + s.talk("udp", "[2001:db8:1::1]:54", each)
			if broken != 0 {
				t.Errorf("%d connections broke", broken)
			}
			// Had the directions of a connection met on two loops, one of them would have known no flow;
			// had two loops known a connection, it would have been opened twice.
			if got := s.opened() - before; got != 8*each {
				t.Errorf("%d connections were opened, not %d", got, 8*each)
			}
			for _, what := range []string{"received", "forwarded", "taken_over", "handed_over"} {
				for loop, n := range s.loops(what) {
					if n == 0 {
						t.Errorf("loop %d: no packets %s", loop, what)
					}
				}
			}
			sum := s.stop()
			for _, why := range []string{"no_flow", "no_backend", "handover_full", "ports_full", "table_full"} {
				if n := sum.Dropped[why]; n != 0 {
					t.Errorf("%d packets dropped as %s", n, why)
				}
			}
		})
	}
}

// talk opens n connections at once, asks on all of them again and again, and returns how many broke:
// no answer, or one of another backend than before.
func (s *site) talk(network, address string, n int) (broken int) {
	s.t.Helper()
	var mu sync.Mutex
	var all, opening sync.WaitGroup
	opening.Add(n)
	limit := make(chan bool, 50)
	for range n {
		all.Go(func() {
			limit <- true
			c, err := s.connect(network, address)
			<-limit
			opening.Done()
			first := ""
			for round := 0; round < 4 && err == nil; round++ {
				var name string
				if name, err = exchange(c); err == nil && first != "" && name != first {
					err = fmt.Errorf("served by %s after %s", name, first)
				}
				first = name
			}
			opening.Wait() // or a port that was closed early would be another's, and the connection the same
			if c != nil {
				c.Close()
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				if broken++; broken <= 3 {
					s.t.Logf("%s: %v", address, err)
				}
			}
		})
	}
	all.Wait()
	return broken
}

func (s *site) connect(network, address string) (c net.Conn, err error) {
	err = s.client.Do(func() (err error) {
		c, err = net.DialTimeout(network, address, 20*time.Second)
		return err
	})
	return c, err
}

// exchange asks once by HTTP or UDP and returns who answers.
func exchange(c net.Conn) (string, error) {
	if c.RemoteAddr().Network() == "tcp" {
		return ask(c)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprint(c, "hello"); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	name, echo, _ := strings.Cut(string(b[:n]), " ")
	if err == nil && echo != "hello" {
		err = fmt.Errorf("answer %q", b[:n])
	}
	return name, err
}

// scrape returns the values of a metric, in the order of its lines, whose labels match.
func (s *site) scrape(name, labels string) (values []int) {
	s.t.Helper()
	out, err := s.gate.Run("curl", "-sS", "-m", "10", "http://127.0.0.1:9100/metrics")
	s.must(err)
	line := regexp.MustCompile(`^` + name + `\{[^}]*` + labels + `[^}]*\} ([0-9]+)`)
	for sc := bufio.NewScanner(strings.NewReader(out)); sc.Scan(); {
		if m := line.FindStringSubmatch(sc.Text()); m != nil {
			n, err := strconv.Atoi(m[1])
			s.must(err)
			values = append(values, n)
		}
	}
	return values
}

// loops returns a counter of each loop.
func (s *site) loops(what string) []int {
	s.t.Helper()
	values := s.scrape("millrace_loop_"+what+"_packets_total", `loop="`)
	if len(values) != s.queues {
		s.t.Errorf("%s packets of %d loops", what, len(values))
	}
	return values
}

// opened returns how many connections were opened so far.
func (s *site) opened() (sum int) {
	s.t.Helper()
	for _, n := range s.scrape("millrace_l4_backend_connections_opened_total", "") {
		sum += n
	}
	return sum
}
