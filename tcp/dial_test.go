package tcp

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"

	"github.com/millrace/millrace/wire"
)

// exhaust connects to one destination from every local port.
func exhaust(d *muxTest) wire.Tuple {
	flow := wire.Tuple{Local: serverAddr, Remote: clientAddr, RemotePort: 80}
	for n := range portCount {
		t := flow
		t.LocalPort = uint16(firstPort + n)
		if _, err := d.m.Connect(d.now, t, nil, nil); err != nil {
			d.Fatal(err)
		}
	}
	return flow
}

// dial connects as package socket does: it calls again as long as the search goes on. It returns the
// number of calls.
func (d *muxTest) dial(flow wire.Tuple) (c *Conn, calls int, err error) {
	for {
		calls++
		if c, err = d.m.Connect(d.now, flow, nil, nil); err != ErrPortSearch {
			return c, calls, err
		}
	}
}

// TestASearchForAPortIsBounded dials a destination whose ports are all in use. One call tries few ports,
// and what the first dial has learned the later ones know.
func TestASearchForAPortIsBounded(t *testing.T) {
	tries := 0
	d := newMuxTest(t, func(c *Config) { c.Owns = func(*wire.Tuple) bool { tries++; return true } })
	flow := exhaust(d)
	tries = 0
	c, calls, err := d.dial(flow)
	if !errors.Is(err, ErrNoPort) || c != nil || tries < portCount || tries > calls*(512+64) {
		t.Fatalf("%v after %d calls and %d tries, want %v", err, calls, tries, ErrNoPort)
	}
	for range 10 {
		tries = 0
		if _, calls, err = d.dial(flow); !errors.Is(err, ErrNoPort) || calls != 1 || tries != 0 {
			t.Fatalf("%v after %d calls and %d tries, want %v at once", err, calls, tries, ErrNoPort)
		}
	}
	other := flow
	other.RemotePort++
	if _, calls, err := d.dial(other); err != nil || calls != 1 {
		t.Errorf("another destination: %v after %d calls", err, calls)
	}
}

// TestAPortIsFreeAgainWithItsConnection ends connections in each way that frees a port.
func TestAPortIsFreeAgainWithItsConnection(t *testing.T) {
	d := newMuxTest(t)
	flow := exhaust(d)
	if _, _, err := d.dial(flow); !errors.Is(err, ErrNoPort) {
		t.Fatal(err)
	}
	expect := func(how string, port uint16) {
		t.Helper()
		c, _, err := d.dial(flow)
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		if c.Tuple().LocalPort != port {
			t.Errorf("%s: port %d, want %d", how, c.Tuple().LocalPort, port)
		}
		if _, _, err := d.dial(flow); !errors.Is(err, ErrNoPort) {
			t.Errorf("%s: %v for the next dial", how, err)
		}
	}
	abort := func(port uint16) wire.Tuple {
		x := flow
		x.LocalPort = port
		d.m.lookup(&x).Abort(d.now)
		return x
	}
	abort(20000)
	expect("abort", 20000)

	x := abort(30000)
	r := d.m.passive.timeWait.add(d.now, &x)
	r.timestamps = true
	if _, _, err := d.dial(flow); !errors.Is(err, ErrNoPort) {
		t.Errorf("a port in TIME-WAIT: %v", err)
	}
	d.now = d.now.Add(timeWaitReuse + 3*time.Millisecond)
	expect("TIME-WAIT with timestamps after a second", 30000)

	x = abort(40000)
	d.m.passive.timeWait.add(d.now, &x)
	d.now = d.now.Add(30 * time.Second)
	if _, _, err := d.dial(flow); !errors.Is(err, ErrNoPort) {
		t.Errorf("a port in TIME-WAIT: %v", err)
	}
	d.now = d.now.Add(31 * time.Second)
	d.m.passive.timeWait.expire(d.now)
	expect("TIME-WAIT after its end", 40000)

	abort(50000)
	l, err := d.m.Listen(wire.Addr{}, 50000, 1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.dial(flow); !errors.Is(err, ErrNoPort) {
		t.Errorf("the port of a listener: %v", err)
	}
	l.Close(d.now)
	expect("close of a listener", 50000)
}

// BenchmarkConnectWithoutFreePort dials a destination to which every local port is in use.
func BenchmarkConnectWithoutFreePort(b *testing.B) {
	d := newMuxTest(b)
	flow := exhaust(d)
	b.ResetTimer()
	for b.Loop() {
		if _, err := d.m.Connect(d.now, flow, nil, nil); err == nil {
			b.Fatal("a port was free")
		}
	}
}

// tupleFree reports whether no connection and no TIME-WAIT record keeps t.
func (d *muxTest) tupleFree(now clock.Time, t *wire.Tuple) bool {
	free, _ := d.m.portFree(now, t, d.m.connected)
	return free
}
