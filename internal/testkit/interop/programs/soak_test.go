package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// soakLoss is what the bridge between the namespaces does to both directions.
const soakLoss = "loss=1%"

// fewestRounds is how many rounds run at least.
const fewestRounds = 9

// holds is what the node holds.
type holds struct {
	kib, descriptors, sockets int
}

// TestSoak runs servers and clients on both sides of a link that loses packets, in rounds, for MILLRACE_SOAK on each tier.
// After each round the node has as many sockets and descriptors as after the first, and its memory does not grow.
func TestSoak(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("MILLRACE_SOAK"))
	if err != nil || os.Getenv("MILLRACE_PROGRAMS") == "" {
		t.Skip("without MILLRACE_SOAK and MILLRACE_PROGRAMS: make soak runs it")
	}
	needs(t, "nginx", "redis-server", "iperf3", "curl", "wrk", "python3")
	for _, on := range []tier{onTier0, onRings} {
		t.Run(strings.ReplaceAll(string(on), " ", ""), func(t *testing.T) {
			b := newBedOver(t, on, soakLoss)
			clients := b.soakServers(t)
			rest := b.holds(t)
			var after []holds
			for end := time.Now().Add(long); !t.Failed() && (time.Now().Before(end) || len(after) < fewestRounds); {
				var round sync.WaitGroup
				for _, client := range clients {
					round.Go(func() { client(t) })
				}
				round.Wait()
				after = append(after, b.awaitHolds(t, rest))
			}
			t.Logf("%d rounds of %d clients: at rest %+v, after the rounds %+v", len(after), len(clients), rest, after)
			if !t.Failed() {
				isFlat(t, after)
			}
		})
	}
}

// soakServers starts the servers in the namespace host, and returns what a round runs at once.
func (b *bed) soakServers(t *testing.T) []func(t *testing.T) {
	t.Helper()
	const size = 3_000_000
	file, sum := content(t, b.dir, size)
	plain, _ := b.webServer(t, b.dir)
	certificate(t, b.dir)
	// A busy machine may stop a transfer for longer than nginx waits by default, and a reset that is lost is not sent again.
	slow := strings.Replace(nginxConfig, "access_log off;", "access_log off; keepalive_timeout 5s; send_timeout 600s; proxy_read_timeout 600s; proxy_connect_timeout 300s;", 1)
	config := strings.NewReplacer("DIR", b.dir, "PORT", plain, "GENERATION", "soak").Replace(slow)
	nginx := b.host.start(t, "nginx", "-c", writeFile(t, filepath.Join(b.dir, "nginx.conf"), config), "-p", b.dir)
	redis := b.host.start(t, "redis-server", "--port", "6379", "--bind", hostAddr, hostAddr6, "--protected-mode", "no", "--save", "", "--dir", b.dir)
	iperf := b.host.start(t, "iperf3", "-s", "-p", "5202", "--forceflush")
	echo := b.host.start(t, "python3", "-c", udpEcho, hostAddr)
	b.opens(t, nginx, 8080)
	b.opens(t, redis, 6379)
	t.Cleanup(func() { logOf(t, filepath.Join(b.dir, "nginx.log")) })
	await(t, "iperf3 -s", func() bool { return strings.Contains(iperf.log.String(), "listening") })
	await(t, "the echo server", func() bool { return strings.Contains(echo.log.String(), "ready") })
	download := func(from *place, url, name string) func(t *testing.T) {
		got := filepath.Join(b.dir, name)
		return func(t *testing.T) {
			if out, code := from.try(t, 5*time.Minute, "curl", "-sSk", "--fail", "-o", got, url+filepath.Base(file)); code != 0 {
				t.Errorf("%s: code %d: %s", url, code, out)
				return
			}
			equal(t, url, got, sum)
		}
	}
	command := func(from *place, args ...string) func(t *testing.T) {
		return func(t *testing.T) {
			if out, code := from.try(t, 5*time.Minute, args...); code != 0 {
				t.Errorf("%v: code %d: %s", args, code, last(out, 1000))
			}
		}
	}
	return []func(t *testing.T){
		download(b.peer, "http://198.18.20.2:8080/", "to-peer"), download(b.peer, "https://198.18.20.2:8443/up/", "proxied"),
		download(b.host, "http://"+peerAddr+":"+plain+"/", "to-host"), download(b.host, "http://[2001:db8:20::2]:8080/", "same"),
		command(b.peer, "wrk", "-t1", "-c10", "-d3s", "http://198.18.20.2:8080/small"),
		command(b.peer, "redis-benchmark", "-h", hostAddr, "-q", "-n", "500", "-c", "20", "-d", "500", "-t", "set,get"),
		command(b.host, "redis-benchmark", "-h", hostAddr, "-q", "-n", "2000", "-c", "20", "-t", "set,get"),
		command(b.peer, "iperf3", "-c", hostAddr, "-p", "5202", "-t", "3", "--bidir"),
		command(b.peer, "python3", "-c", udpAsk, hostAddr), command(b.host, "python3", "-c", udpAsk, hostAddr),
	}
}

// udpEcho answers datagrams, and udpAsk sends some and counts the answers: half of them may be lost.
const (
	udpEcho = `
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 7007)); print('ready', flush=True)
while True:
    d, a = s.recvfrom(2000); s.sendto(d, a)
`
	udpAsk = `
import random, socket, sys
good = 0
for i in range(20):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)
    if i % 2: s.connect((sys.argv[1], 7007))
    for j in range(10):
        d = random.randbytes(random.randrange(1, 1400))
        s.send(d) if i % 2 else s.sendto(d, (sys.argv[1], 7007))
        try: good += s.recv(2000) == d
        except TimeoutError: pass
    s.close()
sys.exit(good < 100)
`
)

// holds reads what the node holds now.
func (b *bed) holds(t *testing.T) (h holds) {
	t.Helper()
	proc := "/proc/" + strconv.Itoa(b.stack.Process.Pid)
	fds, err := os.ReadDir(proc + "/fd")
	must(t, err)
	status, err := os.ReadFile(proc + "/status")
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	_, err = fmt.Sscan(rest, &h.kib)
	must(t, err)
	h.descriptors, h.sockets = len(fds), len(b.sockets(t))
	return h
}

// spareDescriptors is by how many descriptors the node may differ at rest: the runtime and its pools open some late.
const spareDescriptors = 4

// awaitHolds waits until the node has no more sockets and descriptors than at rest, and returns what it holds.
func (b *bed) awaitHolds(t *testing.T, rest holds) (now holds) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		now = b.holds(t)
		if now.sockets == rest.sockets && now.descriptors <= rest.descriptors+spareDescriptors {
			return now
		}
		if time.Now().After(end) {
			t.Fatalf("after a round %+v, at rest %+v: %s", now, rest, strings.Join(b.sockets(t), "\n"))
		}
	}
}

// isFlat fails the test if the memory after the last third of the rounds is larger than after the second: a leak grows
// with the rounds, and pools have their size by then.
func isFlat(t *testing.T, after []holds) {
	t.Helper()
	middle := func(part []holds) int {
		var list []int
		for _, h := range part {
			list = append(list, h.kib)
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	third := len(after) / 3
	second, last := middle(after[third:2*third]), middle(after[2*third:])
	t.Logf("memory in KiB: %d in the second third, %d in the last", second, last)
	if last > second+second/20 {
		t.Errorf("the node's memory grows: %d KiB, then %d KiB: %+v", second, last, after)
	}
}
