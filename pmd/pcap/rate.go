package pcap

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/clock"
)

// Rate is the speed of a replay. At most one of Packets, Bits and Speed is set; none is as fast as possible. The rate is that of the
// driver as a whole: Rx returns what is due and never waits.
type Rate struct {
	Packets float64 // per second
	Bits    float64 // per second, of Ethernet frames without preamble, check sequence and gap
	Speed   float64 // times the speed of the capture: 1 keeps its gaps, 2 halves them

	MaxGap time.Duration // longest wait between two packets, for Speed only; 0 is no limit
}

// ParseRate reads a rate: "max" or "", "500kpps", "1.5Mpps", "10Gbps", "2x". Units are powers of 1000, as link rates have
// them. A rate of 0 is an error: it would never send.
func ParseRate(s string) (Rate, error) {
	bad := fmt.Errorf("rate %q is none of max, 500kpps, 10Gbps, 2x", s)
	if s == "" || s == "max" {
		return Rate{}, nil
	}
	var r Rate
	field, num := &r.Speed, strings.TrimSuffix(s, "x")
	switch {
	case strings.HasSuffix(s, "pps"):
		field, num = &r.Packets, strings.TrimSuffix(s, "pps")
	case strings.HasSuffix(s, "bps"):
		field, num = &r.Bits, strings.TrimSuffix(s, "bps")
	case num == s:
		return r, bad
	}
	scale := 1.0
	if i := strings.IndexAny(num, "kMG"); field != &r.Speed && i >= 0 && i == len(num)-1 {
		scale = map[byte]float64{'k': 1e3, 'M': 1e6, 'G': 1e9}[num[i]]
		num = num[:i]
	}
	v, err := strconv.ParseFloat(num, 64)
	if err != nil {
		return Rate{}, bad
	}
	if *field = v * scale; v <= 0 {
		return Rate{}, bad
	}
	return r, r.check()
}

// String returns the rate without MaxGap, in a form that ParseRate reads, without a scale: "500000pps".
func (r Rate) String() string {
	num := func(v float64, unit string) string { return strconv.FormatFloat(v, 'f', -1, 64) + unit }
	switch {
	case r.Packets != 0:
		return num(r.Packets, "pps")
	case r.Bits != 0:
		return num(r.Bits, "bps")
	case r.Speed != 0:
		return num(r.Speed, "x")
	}
	return "max"
}

// check rejects rates that are not positive numbers, and more than one of them: which of two limits holds would be open.
func (r Rate) check() error {
	set := 0
	for _, v := range []float64{r.Packets, r.Bits, r.Speed} {
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("rate %v is not a positive number", v)
		}
		if v > 0 {
			set++
		}
	}
	switch {
	case set > 1:
		return fmt.Errorf("rate %+v: at most one of packets, bits and speed", r)
	case r.MaxGap < 0:
		return fmt.Errorf("longest gap %v is negative", r.MaxGap)
	case r.MaxGap > 0 && r.Speed == 0:
		return fmt.Errorf("a longest gap of %v needs a rate in times the speed of the capture: at %v no gap is waited for", r.MaxGap, r)
	}
	return nil
}

// pacer computes when packets are due. It counts from the first Rx and not from the packet before, so that rounding and
// late calls never add up: a loop that comes late receives what has become due meanwhile in one burst, and the mean rate
// holds.
type pacer struct {
	started bool
	start   clock.Time // of the first Rx; of this lap for Rate.Speed
	sum     float64    // packets or bits before the packet that is next; exact up to 2^53
	size    float64    // what that packet adds
	first   int64      // capture time of a lap's first packet
	latest  int64      // the latest capture time of the lap
	known   bool       // first and latest are set
	saved   float64    // ns that Rate.MaxGap has taken off the waits of the lap
	wait    float64    // ns from start to the packet; a float, since a capture may span more than a Duration at low speed
	longest float64    // ns, the longest wait of a lap: how long a lap takes
}

// add makes a packet the next one. It is due when those before it have had their time, so the first is due at once.
// Capture times may run backwards: such a packet is due with the one before it.
func (c *pacer) add(r *Rate, size int, at int64) {
	c.sum += c.size
	switch {
	case r.Packets != 0:
		c.size = 1
		c.wait = c.sum / r.Packets * 1e9
	case r.Bits != 0:
		c.size = float64(size) * 8
		c.wait = c.sum / r.Bits * 1e9
	case r.Speed != 0:
		if !c.known {
			c.first, c.latest, c.known = at, at, true
		}
		// Beyond the latest time, since a gap after a packet whose time runs backwards was waited for in part.
		if gap := float64(at-c.latest) / r.Speed; r.MaxGap > 0 && gap > float64(r.MaxGap) {
			c.saved += gap - float64(r.MaxGap)
		}
		c.latest = max(c.latest, at)
		c.wait = float64(at-c.first)/r.Speed - c.saved
		c.longest = max(c.longest, c.wait)
	}
}

// lap starts the next lap where the one before ended: the gaps of a capture repeat. A rate in packets or bits goes on
// across laps, because its sum does.
func (c *pacer) lap() {
	c.start = c.start.Add(nanoseconds(c.longest))
	c.latest, c.saved = c.first, 0
}

// due reports whether the packet of the last add is due at now. The clock starts at the first call, so that the time
// between Open and the first poll is no burst. Without a rate every packet is due, and no clock is read.
func (c *pacer) due(r *Rate, now clock.Time) bool {
	if *r == (Rate{}) {
		return true
	}
	if !c.started {
		c.start, c.started = now, true
	}
	return float64(now.Sub(c.start)) >= c.wait
}

// nanoseconds is a waiting time as a duration. One beyond 146 years is cut, or the conversion would overflow to the past.
func nanoseconds(v float64) time.Duration { return time.Duration(min(v, math.MaxInt64/2)) }
