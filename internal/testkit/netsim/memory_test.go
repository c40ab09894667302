package netsim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// crowd is many connections between two hosts, each of which brings bytes from the client and,
// with echo, back. The programs at both ends act some time after an event, as goroutines that share a
// CPU do.
type crowd struct {
	n, bytes       int
	echo           bool
	client, server tcp.Config
	path           pmd.Impairment
	wait           time.Duration // of a program after an event, at most
	limit          time.Duration // until all have ended
	refused        int64         // bytes that both ends may refuse for lack of memory; -1 is any number

	net      *Net
	rng      *rand.Rand
	listener *tcp.Listener
	members  []*crowdMember // clients
	ended    int            // clients
	reset    int            // of both ends
}

// crowdMember is the program at one end.
type crowdMember struct {
	c       *crowd
	host    *Host
	conn    *tcp.Conn
	server  bool
	toWrite int // not yet written
	read    int
	shut    bool
	waits   bool
}

var crowdZeros [64 << 10]byte

// Ready implements tcp.Owner.
func (m *crowdMember) Ready(tcp.Events) {
	if m.waits || m.conn == nil {
		return
	}
	m.waits = true
	m.host.net.After(time.Duration(m.c.rng.Int64N(int64(m.c.wait)+1)), func() {
		m.waits = false
		m.act()
		m.host.Kick()
	})
}

func (m *crowdMember) act() {
	c := m.conn
	now := m.host.net.Now()
	if c == nil || c.State() == tcp.StateSynSent {
		return
	}
	for c.Err() == nil {
		n := c.Readable()
		if m.server && m.c.echo {
			if n = min(n, 32<<10); m.toWrite > 0 {
				n = 0 // a copy writes all that it has read first
			}
		}
		if n > 0 {
			c.Discard(now, n)
			m.read += n
			if m.server && m.c.echo {
				m.toWrite += n
			}
		}
		k := 0
		if m.toWrite > 0 {
			k = c.Write(now, crowdZeros[:min(m.toWrite, len(crowdZeros))])
			m.toWrite -= k
		}
		if n == 0 && k == 0 {
			break
		}
	}
	if !m.shut && m.toWrite == 0 && (!m.server || c.Finished()) {
		m.shut = true
		c.CloseWrite(now)
	}
	if c.Err() != nil || m.shut && c.Finished() && c.Readable() == 0 {
		if c.Err() != nil {
			m.c.reset++
		}
		if !m.server {
			m.c.ended++
		}
		c.Close(now)
		m.conn = nil
	}
}

// run fails where a client did not get all of its bytes back in time.
func (c *crowd) run(t *testing.T) {
	t.Helper()
	c.net, c.rng = New(1), rand.New(rand.NewPCG(1, 1))
	a, b := c.net.Host(HostConfig{TCP: c.client}), c.net.Host(HostConfig{TCP: c.server})
	c.net.Path(a, b, c.net.Pipe(c.path, 1))
	c.net.Path(b, a, c.net.Pipe(c.path, 2))
	var err error
	if c.listener, err = b.TCP.Listen(wire.Addr{}, 7, c.n, nil, crowdListener{c, b}); err != nil {
		t.Fatal(err)
	}
	for range c.n {
		m := &crowdMember{c: c, host: a, toWrite: c.bytes}
		m.conn, err = a.TCP.Connect(c.net.Now(), wire.Tuple{Local: a.Addr, Remote: b.Addr, RemotePort: 7}, nil, m)
		if err != nil {
			t.Fatal(err)
		}
		c.members = append(c.members, m)
	}
	a.Kick()
	c.net.RunUntil(c.limit, func() bool { return c.ended == c.n })
	for i, m := range c.members {
		if c.echo && m.read < c.bytes || m.conn != nil {
			t.Errorf("client %d: %d bytes of %d were not written, %d came back", i, m.toWrite, c.bytes, m.read)
			break
		}
	}
	x, y := a.TCP.Stats(), b.TCP.Stats()
	t.Logf("%v, %d and %d timeouts, %d and %d bytes refused", c.net.Elapsed(), x.Timeouts, y.Timeouts, x.Pruned, y.Pruned)
	if c.reset > 0 || x.StalledPeers+y.StalledPeers > 0 {
		t.Errorf("%d ends were reset, %d and %d as stalled", c.reset, x.StalledPeers, y.StalledPeers)
	}
	if n := int64(x.Pruned + y.Pruned); c.refused >= 0 && n > c.refused {
		t.Errorf("%d bytes were refused, want at most %d", n, c.refused)
	}
}

// crowdListener owns the listener of a crowd.
type crowdListener struct {
	c *crowd
	h *Host
}

// Ready implements tcp.Owner.
func (l crowdListener) Ready(tcp.Events) {
	for x := l.c.listener.Accept(); x != nil; x = l.c.listener.Accept() {
		x.SetOwner(&crowdMember{c: l.c, host: l.h, conn: x, server: true})
	}
}

// TestCrowdBeyondTheBudget has more connections than the budget serves at once: the default one, and ones that have not
// even a minimum for each. None is reset, none hangs, and with the default budget hardly anything is refused.
func TestCrowdBeyondTheBudget(t *testing.T) {
	gigabit := pmd.Impairment{Rate: 1e9, Delay: 50 * time.Microsecond, Queue: pmd.Queue{Packets: 1000}}
	fast := pmd.Impairment{Delay: 50 * time.Microsecond}
	lossy := pmd.Impairment{Delay: 5 * time.Millisecond, Loss: 2}
	slow := pmd.Impairment{Delay: 5 * time.Millisecond, Rate: 20e6, Queue: pmd.Queue{Packets: 200}}
	large, small, tiny := tcp.Config{Budget: 3 << 20}, tcp.Config{Budget: 1 << 20}, tcp.Config{Budget: 512 << 10}
	for name, c := range map[string]*crowd{
		"upload":              {n: 600, bytes: 512 << 10, path: gigabit, wait: 20 * time.Millisecond, limit: 4 * time.Second},
		"echo":                {n: 600, bytes: 512 << 10, echo: true, path: gigabit, wait: 20 * time.Millisecond, limit: 4 * time.Second, refused: 512 << 10},
		"echo without a rate": {n: 600, bytes: 512 << 10, echo: true, path: fast, wait: 20 * time.Millisecond, limit: time.Second},
		"3 MiB":               {n: 400, bytes: 100 << 10, echo: true, path: fast, wait: time.Millisecond, limit: 2 * time.Second, client: large, server: large},
		"1 MiB":               {n: 400, bytes: 100 << 10, echo: true, path: fast, wait: time.Millisecond, limit: 20 * time.Second, client: small, server: small, refused: -1},
		"1 MiB, server alone": {n: 400, bytes: 100 << 10, echo: true, path: fast, wait: time.Millisecond, limit: 20 * time.Second, server: small, refused: -1},
		"1 MiB, loss":         {n: 400, bytes: 100 << 10, echo: true, path: lossy, wait: time.Millisecond, limit: 30 * time.Second, client: small, server: small, refused: -1},
		"1 MiB, slow":         {n: 400, bytes: 100 << 10, echo: true, path: slow, wait: 100 * time.Millisecond, limit: 60 * time.Second, client: small, server: small, refused: -1},
		"512 KiB":             {n: 400, bytes: 100 << 10, echo: true, path: fast, wait: time.Millisecond, limit: 30 * time.Second, client: tiny, server: tiny, refused: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}
