package replay

import (
	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/packet"
)

// outPort is the port of the loop that the output device is.
const outPort = 1

// checks are the reasons for which a packet of a capture is dropped. Checksums are only counted: captures made on
// a sender whose device fills them in are full of wrong ones.
const checks = filter.CheckMalformed | filter.CheckHeaders

// handler counts the packets of one file and decides their verdicts: those that the filter
// drops end here, the others go on to the output device, or are delivered where there is none.
type handler struct {
	src     *source
	filter  *filter.Filter
	flows   *flows
	found   *matches
	search  *expressions
	inspect *inspector
	save    *saver // of what passes
	record  *saver // of what rules ask for
	sum     *Sum
	forward bool
	longest int                     // of the packets forwarded, bytes without the Ethernet header
	dropped [packet.Verdicts]uint64 // packets, where nothing is forwarded
}

// Tick implements stack.Handler: there are no timers.
func (h *handler) Tick(clock.Time) clock.Time { return clock.Never }

// Handle implements stack.Handler.
func (h *handler) Handle(_ clock.Time, b *packet.Batch) {
	if len(h.src.rebased) > 0 {
		h.src.restore(b)
	}
	h.filter.Apply(b)
	h.found.batch(b)
	h.search.batch(b, h.found.at+1)
	for i := 0; i < len(b.D); {
		d, first := &b.D[i], i
		i += max(1, packet.Chain(b.D[i:]))
		_, size := packet.Count(b.D[first:i])
		h.flows.present = noConversation
		h.count(b, first, int(size))
		h.inspect.packet(b, first, b.D[first:i])
		h.found.packet(i, d)
		h.save.packet(b, first, b.D[first:i], !d.Verdict.Dropped())
		h.record.packet(b, first, b.D[first:i], h.record != nil && h.filter.Captures(d))
		if h.forward && !d.Verdict.Dropped() {
			d.Verdict, d.Port = packet.Forward, outPort
			h.longest = max(h.longest, int(size)-len(capture.EthernetHeader{}))
		} else if h.forward {
			h.src.inside -= i - first
		}
	}
	if !h.forward {
		h.take(b)
	}
}

// take keeps every frame from the loop, because frames of a resident capture go back to the driver
// and never to the pool, and counts the drops that the loop now does not see.
func (h *handler) take(b *packet.Batch) {
	first := true
	for i := range b.D {
		d := &b.D[i]
		if first && d.Verdict.Dropped() {
			h.dropped[d.Verdict]++
		}
		first = !d.Flags.Has(packet.FlagMore)
		d.Verdict = packet.Deliver
	}
	h.src.Release(&packet.Batch{Arena: b.Arena, D: b.D})
}

// count adds one packet of b, whose first descriptor is number i, to the sum.
func (h *handler) count(b *packet.Batch, i, size int) {
	a, d := b.Arena, &b.D[i]
	s, g := h.sum, d.Flags
	s.Packets++
	s.Bytes += uint64(size)
	s.sizes[sizeClass(size)]++
	if g&(packet.FlagVLAN|packet.FlagFragment|packet.FlagMalformed|packet.FlagTruncated|packet.FlagOptions) != 0 {
		s.oddities(g)
	}
	if g&(packet.FlagIPv4|packet.FlagIPv6) == 0 {
		s.others[etherType(a.Bytes(d), d)]++
		return
	}
	if g.Has(packet.FlagIPv4) {
		s.IPv4++
		if !g.Has(packet.FlagIPChecksumOK) {
			s.IPChecksumErrors++
		}
	} else {
		s.IPv6++
	}
	s.protocols[d.Proto]++
	if g.Has(packet.FlagMalformed) {
		return
	}
	s.transport(a.Bytes(d), d)
	if d.L4 != 0 { // without its transport header a packet is of no known flow
		h.flows.add(a.Bytes(d), d, size, b.Time(i))
	}
}
