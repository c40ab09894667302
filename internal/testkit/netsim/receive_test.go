package netsim

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/tcp"
)

// receiving is a flow to a host that only receives.
type receiving struct {
	rate    pmd.BitRate
	rtt     time.Duration
	server  EndConfig   // the program that receives
	client  EndConfig   // the one that sends
	host    tcp.Config  // of the receiver
	options tcp.Options // of both ends
	lost    time.Duration
	time    time.Duration // of the run after the handshake; 2 s
}

// run returns the goodput of the second half in MB/s, and the receive buffer at the end.
func (r receiving) run(t *testing.T) (rate float64, buffer int) {
	t.Helper()
	n := New(1)
	a, b := n.Host(HostConfig{}), n.Host(HostConfig{TCP: r.host})
	n.Path(a, b, n.Pipe(pmd.Impairment{Rate: r.rate, Delay: r.rtt / 2}, 1))
	back := n.Pipe(pmd.Impairment{Rate: r.rate, Delay: r.rtt / 2}, 2)
	n.Path(b, a, back)
	if r.lost > 0 {
		imp := back.Impairment()
		back.Set(pmd.Impairment{Loss: 100})
		n.After(r.lost, func() { back.Set(imp) })
	}
	r.server.Hold = true // its FIN would measure a round-trip time
	if r.client.Bytes == 0 {
		r.client.Bytes = 1 << 40
	}
	if r.time == 0 {
		r.time = 2 * time.Second
	}
	f := n.Flow(FlowConfig{From: a, To: b, Client: r.client, Server: r.server, Options: r.options, Accept: r.options})
	if !n.RunUntil(10*time.Second, func() bool { return f.Server.Conn != nil }) {
		t.Fatal("no connection")
	}
	began := n.Elapsed()
	n.Run(r.time)
	if err := f.Err(); err != nil {
		t.Error(err)
	}
	rate = f.Goodput(began+r.time/2, began+r.time) / 8e6
	buffer = f.Server.Conn.Info().ReceiveBuffer
	t.Logf("%.1f MB/s, receive buffer %d kB", rate, buffer>>10)
	return rate, buffer
}

// A host that only receives has no round-trip time as a sender when its SYN-ACK was lost (Karn's algorithm) or
// was a SYN cookie. Its window grows all the same.
func TestReceiveBufferGrowsWithoutASendersRTT(t *testing.T) {
	base := receiving{rate: 400e6, rtt: 50 * time.Millisecond}
	for name, set := range map[string]func(r *receiving){
		"in order":      func(*receiving) {},
		"2 ms":          func(r *receiving) { r.rtt, r.rate, r.lost = 2*time.Millisecond, 8e9, 200*time.Millisecond },
		"lost SYN-ACK":  func(r *receiving) { r.lost = 200 * time.Millisecond },
		"SYN cookie":    func(r *receiving) { r.host.MaxHalfOpen = -1 },
		"no timestamps": func(r *receiving) { r.lost, r.options.NoTimestamps = 200*time.Millisecond, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := base
			set(&r)
			rate, buffer := r.run(t)
			if rate < 38 || buffer < 2_500_000 {
				t.Errorf("%.1f MB/s with %d bytes of buffer, want 38 and the product of bandwidth and round trip", rate, buffer)
			}
		})
	}
}

// At 27 us a window of four megabytes would only be a queue.
func TestReceiveBufferStaysSmallOnAShortPath(t *testing.T) {
	for name, o := range map[string]tcp.Options{"timestamps": {}, "none": {NoTimestamps: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rate, buffer := receiving{rate: 8e9, rtt: 27 * time.Microsecond, options: o, time: 200 * time.Millisecond}.run(t)
			if rate < 900 || buffer > 1<<20 {
				t.Errorf("%.1f MB/s of 960, %d bytes of buffer", rate, buffer)
			}
		})
	}
}

// A program that reads slowly, or a peer that sends little, needs no more than it uses.
func TestReceiveBufferFollowsNeed(t *testing.T) {
	for name, r := range map[string]receiving{
		"slow reader":        {rate: 400e6, rtt: 50 * time.Millisecond, server: EndConfig{ReadChunk: 1000, ReadPause: time.Millisecond}},
		"slow reader, short": {rate: 400e6, rtt: 100 * time.Microsecond, server: EndConfig{ReadChunk: 1000, ReadPause: time.Millisecond}},
		"limited sender":     {rate: 400e6, rtt: 50 * time.Millisecond, client: EndConfig{Bytes: 1 << 40, Chunk: 10_000, Pause: 10 * time.Millisecond}},
		"pausing sender":     {rate: 400e6, rtt: 5 * time.Millisecond, client: EndConfig{Bytes: 1 << 40, Chunk: 60_000, Pause: 300 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, buffer := r.run(t); buffer > 256<<10 {
				t.Errorf("%d bytes of buffer", buffer)
			}
		})
	}
}

// A program that reads all there is but seldom gets the window that it needs to be faster, and no more than that.
func TestReceiveBufferOfASeldomReader(t *testing.T) {
	seldom := EndConfig{ReadPause: 10 * time.Millisecond, Peek: true}
	rate, _ := receiving{rate: 400e6, rtt: 27 * time.Microsecond, server: seldom}.run(t)
	if rate < 40 {
		t.Errorf("%.1f MB/s of 48", rate)
	}
}
