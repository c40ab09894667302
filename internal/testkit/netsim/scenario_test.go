package netsim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/tcp"
)

// scenario is what one seed makes: two hosts, a bad network between them, programs, and things that
// happen meanwhile. Everything follows from the seed.
type scenario struct {
	seed  uint64
	net   *Net
	hosts [2]*Host
	pipes [2]*Pipe
	flows []*Flow
	mon   *Monitor
	rng   *rand.Rand
	over  string // how a budget was overdrawn
	notes []string
}

func newScenario(seed uint64) *scenario {
	s := &scenario{seed: seed, net: New(seed), rng: rand.New(rand.NewPCG(seed, 0x5ce0))}
	s.mon = s.net.Monitor()
	s.net.Watch(s.memory)
	v6 := s.oneIn(4)
	for i := range s.hosts {
		c := s.host(v6)
		s.mon.RefuseOK = s.mon.RefuseOK || c.TCP.Budget != 0
		s.hosts[i] = s.net.Host(c)
	}
	p := s.profile()
	s.note("%s", p)
	s.pipes[0], s.pipes[1] = s.net.Join(s.hosts[0], s.hosts[1], p)
	for range 1 + s.rng.IntN(5)/3 {
		s.flow()
	}
	if s.oneIn(8) {
		s.narrow(v6)
	}
	return s
}

// memory watches the bytes of buffers.
func (s *scenario) memory(e *Event) {
	for i, h := range s.hosts {
		budget := h.cfg.TCP.Budget
		if budget == 0 {
			budget = 64 << 20
		}
		if used := h.TCP.Stats().Memory; used > budget && s.over == "" {
			s.over = fmt.Sprintf("%.6f: host %d has %d bytes of buffers, its budget is %d", Seconds(e.At), i+1, used, budget)
		}
	}
}

func (s *scenario) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

func (s *scenario) oneIn(n int) bool { return s.rng.IntN(n) == 0 }

// pick returns one of the choices.
func pick[T any](s *scenario, choices ...T) T { return choices[s.rng.IntN(len(choices))] }

func (s *scenario) host(v6 bool) HostConfig {
	c := HostConfig{IPv6: v6, NoGRO: s.oneIn(3), MTU: pick(s, 1500, 1500, 1500, 9000, 1280)}
	if !v6 && s.oneIn(8) {
		c.MTU = 576
	}
	if s.oneIn(4) {
		c.Coalesce = pick(s, 10*time.Microsecond, 200*time.Microsecond, 2*time.Millisecond)
	}
	if s.oneIn(6) {
		c.Refuse = pick[pmd.Percent](s, 1, 20)
	}
	if s.oneIn(6) {
		c.TCP.Budget = pick[int64](s, 256<<10, 1<<20)
	}
	if s.oneIn(4) {
		c.Offload = pick(s, 1, 1460, 5000)
	}
	return c
}

// profile is a network that is bad in some ways, and different in each direction.
func (s *scenario) profile() pmd.Profile {
	return pmd.Profile{Tx: s.impairment(), Rx: s.impairment(), Seed: s.rng.Uint64()}
}

func (s *scenario) impairment() (m pmd.Impairment) {
	m.Delay = time.Duration(s.rng.ExpFloat64() * float64(10*time.Millisecond))
	if s.oneIn(2) {
		m.Loss = pick[pmd.Percent](s, 0.1, 1, 5, 20)
	}
	if s.oneIn(5) {
		m.Burst = pmd.Burst{Start: pick[pmd.Percent](s, 0.5, 3), End: pick[pmd.Percent](s, 10, 40), LostBad: 100}
	}
	if s.oneIn(4) {
		m.Dup = pick[pmd.Percent](s, 1, 10)
	}
	if s.oneIn(4) {
		m.Corrupt = pick[pmd.Percent](s, 1, 5)
	}
	if s.oneIn(4) {
		m.CE = pick[pmd.Percent](s, 1, 20, 100)
	}
	if s.oneIn(3) {
		m.Jitter = time.Duration(s.rng.Float64() * float64(m.Delay))
		m.Shape = pick(s, pmd.Uniform, pmd.Normal, pmd.Pareto)
		m.FIFO = s.oneIn(2)
	}
	if s.oneIn(4) {
		m.Reorder, m.ReorderHold = pick[pmd.Percent](s, 1, 10, 50), pick(s, time.Millisecond, 20*time.Millisecond)
	}
	if s.oneIn(2) {
		m.Rate = pick[pmd.BitRate](s, 1e6, 10e6, 100e6)
		if s.oneIn(2) {
			m.Queue.Packets = pick(s, 3, 20, 100)
		}
	}
	return m
}

// flow adds a connection with programs.
func (s *scenario) flow() {
	a, b := s.hosts[0], s.hosts[1]
	if s.oneIn(2) {
		a, b = b, a
	}
	c := FlowConfig{
		From: a, To: b, Bytes: s.size(), Back: s.size(), Start: pick(s, 0, 30*time.Millisecond),
		Options: s.options(), Accept: s.options(), Client: s.end(), Server: s.end(), Both: s.oneIn(12),
	}
	if c.Client.Wait && c.Server.Wait {
		c.Client.Wait = false
	}
	if s.oneIn(16) {
		e := pick(s, &c.Client, &c.Server)
		e.AbortAt = 1 + uint64(s.rng.IntN(20_000))
	}
	s.note("flow %d>%d: bytes %d/%d both %v options %+v accept %+v client %+v server %+v", a.Addr[15], b.Addr[15], c.Bytes, c.Back, c.Both, c.Options, c.Accept, c.Client, c.Server)
	s.flows = append(s.flows, s.net.Flow(c))
}

// size is mostly small: the handshake and the end are where the states are.
func (s *scenario) size() uint64 {
	return uint64(s.rng.IntN(pick(s, 1, 2, 3000, 30_000, 150_000)))
}

func (s *scenario) options() (o tcp.Options) {
	o.Congestion = pick(s, "", "cubic", "reno", "bbr", "dctcp")
	o.NoTimestamps, o.NoSACK, o.NoScaling = s.oneIn(4), s.oneIn(4), s.oneIn(4)
	o.ECN = pick(s, tcp.ECNPassive, tcp.ECNOff, tcp.ECNClassic, tcp.ECNAccurate)
	o.NoDelay, o.Cork, o.NoDelayedAck = s.oneIn(4), s.oneIn(10), s.oneIn(6)
	if s.oneIn(4) {
		o.SendBuffer = pick(s, 2000, 10_000, 100_000)
	}
	if s.oneIn(4) {
		o.ReceiveBuffer = pick(s, 2000, 10_000, 100_000)
	}
	if s.oneIn(10) {
		o.MSS = pick(s, 100, 536, 1400)
	}
	if s.oneIn(10) {
		o.MaxPacing = 500_000
	}
	if s.oneIn(10) {
		o.KeepAlive = tcp.KeepAlive{Idle: 100 * time.Millisecond, Interval: 600 * time.Millisecond, Count: 100} // answers have a limit of their own (RFC 5961 7)
	}
	o.PathProbe = s.oneIn(10)
	return o
}

func (s *scenario) end() (e EndConfig) {
	e.Chunk = pick(s, 0, 0, 0, 1460, 100, 5000)
	if s.oneIn(8) {
		e.Chunk, e.Pause = pick(s, 500, 3000), pick(s, time.Millisecond, 10*time.Millisecond)
	}
	if s.oneIn(8) {
		e.ReadChunk, e.ReadPause = pick(s, 700, 10_000), pick(s, time.Millisecond, 20*time.Millisecond)
	}
	if s.oneIn(12) {
		e.ReadDelay = pick(s, 300*time.Millisecond, 3*time.Second)
	}
	e.ZeroCopy, e.More, e.Peek, e.Wait = s.oneIn(4) && (e.Chunk == 0 || e.Chunk >= 1460), s.oneIn(6), s.oneIn(3), s.oneIn(6)
	if s.oneIn(10) {
		e.Mark = uint64(s.rng.IntN(5000))
	}
	return e
}

// narrow has the MTU of the path fall once it is in use.
func (s *scenario) narrow(v6 bool) {
	mtu := pick(s, 1280, 1400)
	if !v6 {
		mtu = pick(s, 600, 1000, 1400)
	}
	l := s.pipes[s.rng.IntN(2)]
	l.TooBig = true
	after := time.Duration(s.rng.IntN(int(100 * time.Millisecond)))
	s.note("mtu %d after %v", mtu, after)
	s.net.After(after, func() {
		m := l.Impairment()
		m.MTU = mtu
		l.Set(m)
	})
}

const (
	badTime  = 10 * time.Second  // as long as the network is bad
	goodTime = 300 * time.Second // for all flows to end once it is not
	restTime = 5 * time.Minute   // for every connection to be forgotten: TIME-WAIT, and what lingers
)

// run lets it happen and returns what was wrong; "" for nothing.
func (s *scenario) run() string {
	s.net.After(badTime, func() {
		s.pipes[0].Clean()
		s.pipes[1].Clean()
	})
	done := func() bool {
		for _, f := range s.flows {
			if !f.Done() && !(aborted(f) && (f.Client.Ended || f.Server.Ended)) {
				return false
			}
		}
		return true
	}
	ended := s.net.RunUntil(badTime+goodTime, done)
	for _, f := range s.flows {
		f.Close()
		if ended {
			s.net.Run(pick(s, 0, time.Second)) // a reset may get lost, and nobody ask again
			f.Client.Stop()
			f.Server.Stop()
		}
	}
	var wrong []string
	if !ended {
		wrong = append(wrong, "no progress: "+s.state())
	}
	for i, f := range s.flows {
		if err := f.Err(); err != nil && !aborted(f) {
			wrong = append(wrong, fmt.Sprintf("flow %d: %v", i, err))
		}
	}
	wrong = append(wrong, s.mon.Faults...)
	if s.over != "" {
		wrong = append(wrong, s.over)
	}
	if len(wrong) == 0 {
		wrong = s.leaks()
	}
	return strings.Join(wrong, "\n")
}

// aborted reports whether a flow was to be reset, or may have been by a host that ran out of memory while
// the flow did not move (tcp.Stats.StalledPeers).
func aborted(f *Flow) bool {
	return f.cfg.Client.AbortAt != 0 || f.cfg.Server.AbortAt != 0 ||
		f.cfg.From.TCP.Stats().StalledPeers+f.cfg.To.TCP.Stats().StalledPeers > 0
}

func (s *scenario) state() string {
	var b strings.Builder
	for i, f := range s.flows {
		fmt.Fprintf(&b, "[flow %d:", i)
		for _, e := range []*End{f.Client, f.Server} {
			fmt.Fprintf(&b, " sent %d received %d ended %v", e.Sent, e.Received, e.Ended)
			if e.Conn != nil {
				fmt.Fprintf(&b, " %v unacked %d readable %d", e.Conn.State(), e.Conn.Unacked(), e.Conn.Readable())
			}
		}
		b.WriteString("] ")
	}
	return b.String()
}

// leaks lets time pass until nothing should be left, and returns what is.
func (s *scenario) leaks() (wrong []string) {
	s.net.Run(restTime)
	for i, h := range s.hosts {
		st := h.TCP.Stats()
		if st.Conns != 0 || st.HalfOpen != 0 || st.TimeWait != 0 || st.Memory != 0 {
			wrong = append(wrong, fmt.Sprintf("host %d keeps %d connections, %d half open, %d in TIME-WAIT, %d bytes", i+1, st.Conns, st.HalfOpen, st.TimeWait, st.Memory))
		}
	}
	for i, f := range s.flows {
		for _, e := range []*End{f.Client, f.Server} {
			if e.outstanding != 0 {
				wrong = append(wrong, fmt.Sprintf("flow %d: %d zero-copy writes were never released", i, e.outstanding))
			}
		}
	}
	if n := len(s.net.events.heap); n > 2 {
		wrong = append(wrong, fmt.Sprintf("%d events are still to come", n))
	}
	return wrong
}
