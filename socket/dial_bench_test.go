package socket

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/wire"
)

// BenchmarkBystanderOfDialsWithoutAPort has four goroutines dial a destination to which every local port is
// in use, while another one enters the loop as a Read or Write does. It reports what the latter waits.
func BenchmarkBystanderOfDialsWithoutAPort(b *testing.B) {
	x := newTestbed(b, testbedConfig{})
	const to = "198.18.0.99:80" // does not answer
	t, err := x.a.tuple(&Dialer{}, netip.MustParseAddrPort(to))
	if err != nil {
		b.Fatal(err)
	}
	err = x.a.group.Each(func(now clock.Time, h *host.Host) error { return fillPorts(now, h, t) })
	if err != nil {
		b.Fatal(err)
	}
	var stop atomic.Bool
	var dials atomic.Int64
	for range 4 {
		go func() {
			for !stop.Load() {
				if _, err := x.a.Dial("tcp", to); err != nil {
					dials.Add(1)
				}
			}
		}()
	}
	var waits []time.Duration
	h := x.a.group.Hosts[0]
	start := time.Now()
	for b.Loop() {
		began := time.Now()
		h.Enter()
		h.Exit()
		waits = append(waits, time.Since(began))
		time.Sleep(100 * time.Microsecond)
	}
	took := time.Since(start)
	stop.Store(true)
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(waits[len(waits)-1].Microseconds()), "max-us")
	b.ReportMetric(float64(dials.Load())/took.Seconds(), "dials/s")
}

// fillPorts connects to a destination from every local port.
func fillPorts(now clock.Time, h *host.Host, t wire.Tuple) error {
	for port := 16384; port < 1<<16; port++ {
		t.LocalPort = uint16(port)
		if _, err := h.TCP.Connect(now, t, nil, nil); err != nil {
			return err
		}
	}
	return nil
}
