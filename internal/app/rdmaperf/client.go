package rdmaperf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/rdma/transport"
)

// Test describes a measurement.
type Test struct {
	Peer       netip.AddrPort
	Op         Op
	Size       int // bytes of a message
	Iterations int
}

// Bandwidth is the result of a bandwidth test, with the columns of perftest. A MiB is 2^20 bytes.
type Bandwidth struct {
	Peer       netip.AddrPort `json:"peer"`
	Op         string         `json:"op"`
	Size       int            `json:"bytes"`
	Iterations int            `json:"iterations"`
	Peak       *float64       `json:"peak_mib_per_second"` // null with more than 20000 iterations, as in perftest
	Average    float64        `json:"average_mib_per_second"`
	Rate       float64        `json:"messages_per_second"`
	Seconds    float64        `json:"seconds"`
	Repeated   uint64         `json:"repeated_packets"`
}

// Latency is the result of a latency test in microseconds, with the columns of perftest: half of the round trip of write and send, the whole one
// of read.
type Latency struct {
	Peer       netip.AddrPort `json:"peer"`
	Op         string         `json:"op"`
	Size       int            `json:"bytes"`
	Iterations int            `json:"iterations"`
	Min        float64        `json:"min_us"`
	Max        float64        `json:"max_us"`
	Typical    float64        `json:"typical_us"` // the median
	Average    float64        `json:"average_us"`
	Deviation  float64        `json:"deviation_us"`
	P99        float64        `json:"p99_us"`
	P999       float64        `json:"p99_9_us"`
}

// check returns an error about a test that cannot be run.
func (t *Test) check() error {
	switch {
	case t.Size < 1 || t.Size > MaxSize:
		return fmt.Errorf("size %d, want 1 to %d", t.Size, MaxSize)
	case t.Iterations < 1 || t.Iterations > 10_000_000:
		return fmt.Errorf("%d iterations, want 1 to 10000000", t.Iterations)
	}
	return nil
}

// connect connects to the server.
func connect(ctx context.Context, c *rdma.Context, t *Test, m mode) (*session, *reply, error) {
	if err := t.check(); err != nil {
		return nil, nil, err
	}
	s, err := newSession(c, 2*t.Size)
	if err != nil {
		return nil, nil, err
	}
	if m == echo {
		for i := 0; i < depth && err == nil; i++ {
			err = s.postRecv(t.Size, t.Size)
		}
	}
	q := request{m, uint32(t.Size), s.mr.Addr() + uint64(t.Size), s.mr.RKey()}
	if err == nil {
		s.id, err = c.ConnectCM(ctx, t.Peer, s.qp, rdma.ConnParam{Private: q.append(nil)})
	}
	if err == nil {
		var r reply
		if r, err = parseReply(s.id.Private()); err == nil {
			return s, &r, nil
		}
	}
	s.close()
	return nil, nil, err
}

// wr returns the request of a test.
func (t *Test) wr(s *session, r *reply) rdma.SendWR {
	op := [ops]rdma.Op{rdma.OpWrite, rdma.OpRead, rdma.OpSend}[t.Op]
	return rdma.SendWR{Op: op, Flags: rdma.Signaled, List: []rdma.SGE{s.mr.SGE(0, t.Size)}, RemoteAddr: r.va, RKey: r.rkey}
}

// mostForPeak bounds iterations of which the peak is computed, which takes the square of them.
const mostForPeak = 20000

// RunBandwidth sends messages, as many at a time as fit.
func RunBandwidth(ctx context.Context, c *rdma.Context, t Test) (*Bandwidth, error) {
	m := memory
	if t.Op == Send {
		m = sink
	}
	s, r, err := connect(ctx, c, &t, m)
	if err != nil {
		return nil, err
	}
	defer s.close()
	w := t.wr(s, r)
	posted, done := make([]time.Duration, t.Iterations), make([]time.Duration, 0, t.Iterations)
	var wc [depth]rdma.Completion
	begin := time.Now()
	for next := 0; len(done) < t.Iterations; {
		for next < t.Iterations && next-len(done) < depth {
			posted[next] = time.Since(begin)
			if err := s.qp.PostSend(&w); err != nil {
				return nil, err
			}
			next++
		}
		n, err := s.next(ctx, wc[:])
		if err != nil {
			return nil, err
		}
		now := time.Since(begin)
		for _, k := range wc[:n] {
			if k.Status != transport.Success {
				return nil, fmt.Errorf("%v %d of %d: %v", t.Op, len(done)+1, t.Iterations, k.Status)
			}
			done = append(done, now)
		}
	}
	b := &Bandwidth{Peer: t.Peer, Op: t.Op.String(), Size: t.Size, Iterations: t.Iterations, Repeated: s.qp.Counters().Repeated}
	all := done[len(done)-1] - posted[0]
	b.Seconds = all.Seconds()
	b.Rate = float64(t.Iterations) / b.Seconds
	b.Average = b.Rate * float64(t.Size) / (1 << 20)
	if t.Iterations <= mostForPeak {
		p := float64(t.Size) / (1 << 20) / peakTime(posted, done).Seconds()
		b.Peak = &p
	}
	return b, nil
}

// peakTime returns the shortest time per message over all spans of messages, as perftest computes it.
func peakTime(posted, done []time.Duration) time.Duration {
	best := done[0] - posted[0]
	for i := range posted {
		for j := i; j < len(done); j++ {
			best = min(best, (done[j]-posted[i])/time.Duration(j-i+1))
		}
	}
	return max(best, 1)
}

// exchange does one operation of a latency test and returns when its result is there.
func (s *session) exchange(ctx context.Context, w *rdma.SendWR, answered bool) error {
	if err := s.qp.PostSend(w); err != nil {
		return err
	}
	sent, came := false, !answered
	var wc [4]rdma.Completion
	for !sent || !came {
		n, err := s.next(ctx, wc[:])
		if err != nil {
			return err
		}
		for _, k := range wc[:n] {
			if k.Status != transport.Success {
				return errors.New(k.Status.String())
			}
			if k.Op == rdma.OpRecv || k.Op == rdma.OpRecvImm {
				came = true
			} else {
				sent = true
			}
		}
	}
	if answered {
		size := int(w.List[0].Length)
		return s.postRecv(size, size)
	}
	return nil
}

// warmUp is the number of operations before those that are measured.
const warmUp = 10

// RunLatency does one operation after another.
func RunLatency(ctx context.Context, c *rdma.Context, t Test) (*Latency, error) {
	m, answered := echo, true
	if t.Op == Read {
		m, answered = memory, false
	}
	s, r, err := connect(ctx, c, &t, m)
	if err != nil {
		return nil, err
	}
	defer s.close()
	w := t.wr(s, r)
	if t.Op == Write { // the peer has to notice it
		w.Op = rdma.OpWriteImm
	}
	times := make([]time.Duration, 0, t.Iterations)
	for i := range t.Iterations + warmUp {
		begin := time.Now()
		if err := s.exchange(ctx, &w, answered); err != nil {
			return nil, fmt.Errorf("%v %d of %d: %w", t.Op, i+1, t.Iterations, err)
		}
		if i >= warmUp {
			times = append(times, time.Since(begin))
		}
	}
	return t.latency(times, answered), nil
}

// latency computes the figures.
func (t *Test) latency(times []time.Duration, half bool) *Latency {
	slices.Sort(times)
	unit := float64(time.Microsecond)
	if half {
		unit *= 2
	}
	at := func(q float64) float64 {
		return float64(times[min(len(times)-1, int(math.Ceil(q*float64(len(times)))))]) / unit
	}
	l := &Latency{
		Peer: t.Peer, Op: t.Op.String(), Size: t.Size, Iterations: len(times), Min: float64(times[0]) / unit, Max: float64(times[len(times)-1]) / unit,
		Typical: float64(times[len(times)/2]) / unit, P99: at(0.99), P999: at(0.999),
	}
	for _, d := range times {
		l.Average += float64(d) / unit / float64(len(times))
	}
	for _, d := range times {
		l.Deviation += (float64(d)/unit - l.Average) * (float64(d)/unit - l.Average)
	}
	l.Deviation = math.Sqrt(l.Deviation / float64(len(times)))
	return l
}

// Ping reads from the peer's memory at intervals, count times or until ctx ends with 0. shown gets each time; an error ends it.
func Ping(ctx context.Context, c *rdma.Context, t Test, interval time.Duration, count int, shown func(n int, d time.Duration)) (*Latency, error) {
	t.Op, t.Iterations = Read, max(count, 1)
	s, r, err := connect(ctx, c, &t, memory)
	if err != nil {
		return nil, err
	}
	defer s.close()
	w := t.wr(s, r)
	var times []time.Duration
	for i := 0; (count == 0 || i < count) && ctx.Err() == nil; i++ {
		begin := time.Now()
		if err := s.exchange(ctx, &w, false); err != nil {
			if ctx.Err() != nil {
				break
			}
			return nil, err
		}
		times = append(times, time.Since(begin))
		shown(i+1, times[i])
		if count == 0 || i < count-1 {
			select {
			case <-ctx.Done():
			case <-time.After(interval):
			}
		}
	}
	if len(times) == 0 {
		return nil, ctx.Err()
	}
	return t.latency(times, false), nil
}
