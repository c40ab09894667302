package kernbench

import (
	"fmt"
	"net/netip"

	"github.com/millrace/millrace/gpukern/sketch"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// rate is the estimate of a sketch for a source.
type rate struct {
	source         netip.Addr
	packets, bytes uint64
}

// sources is the number of sources of a load that are asked for.
const sources = 1000

// countedBy asks the sketch of an engine for the sources of evenly spread packets; the first entry, without
// an address, is of all. It returns nil where there is no sketch.
func countedBy(e *engine, l *load, desc []packet.Desc) []rate {
	if e.sketch == nil {
		return nil
	}
	var all rate
	all.packets, all.bytes = e.sketch.Total()
	list := []rate{all}
	for i := 0; i < len(desc); i += 1 + len(desc)/sources {
		if a, ok := sourceOf(l.arena.View().Bytes(&desc[i]), &desc[i]); ok {
			r := rate{source: a}
			r.packets, r.bytes = e.sketch.Rate(a)
			list = append(list, r)
		}
	}
	return list
}

func sourceOf(p []byte, d *packet.Desc) (netip.Addr, bool) {
	switch {
	case d.Flags.Has(packet.FlagMalformed):
	case d.Flags.Has(packet.FlagIPv4):
		return wire.IPv4(p[d.L3:]).SrcAddr(), true
	case d.Flags.Has(packet.FlagIPv6):
		return wire.IPv6(p[d.L3:]).SrcAddr(), true
	}
	return netip.Addr{}, false
}

// compareSketch compares a sketch, of an engine that went over the load so many times, with what the CPU's
// says after one time: counters are sums.
func (e *expectation) compareSketch(s *sketch.Sketch, times uint64) error {
	for _, want := range e.counted {
		var packets, bytes uint64
		if want.source.IsValid() {
			packets, bytes = s.Rate(want.source)
		} else {
			packets, bytes = s.Total()
		}
		if packets != times*want.packets || bytes != times*want.bytes {
			return fmt.Errorf("%w: the sketch has %d packets, %d bytes of %v, not %d, %d",
				ErrWrong, packets, bytes, want.source, times*want.packets, times*want.bytes)
		}
	}
	return nil
}
