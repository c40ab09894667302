package loss

import "github.com/millrace/millrace/clock"

// record is a range of sequence space that was sent at one time: a segment, several sent as
// one super-segment, or what SACK has left of them. It has no pointers, so that the garbage
// collector does not scan it; index 0 is no record.
type record struct {
	seq, end uint32
	mss      uint32 // segments were cut at seq + n*mss
	flight   uint32 // pipe when it was sent, itself included

	sent      clock.Time // last transmission
	delivered uint64     // Scoreboard.delivered then
	lost      uint64     // Scoreboard.lost then

	deliveredAt, firstSent clock.Time // of the rate estimator then (draft-cheng-iccrg-delivery-rate-estimation 3.2)

	prev, next     uint32 // by sequence number
	earlier, later uint32 // by transmission time, of outstanding records: neither SACKed nor lost
	state          state
	group          uint16 // of the index, where the flight has one
}

func (r *record) len() uint32 { return r.end - r.seq }

// state holds the flags of a record. Without sacked and missing it is outstanding.
type state uint8

const (
	sacked     state = 1 << iota
	missing          // lost, and not sent again since
	resent           // sent more than once: no RTT sample (Karn)
	appLimited       // sent while the application limited the rate
)

// maxSpare is the number of unused records that a pool keeps when none is in use.
const maxSpare = 4096

// maxSpareIndexes is the number of unused indexes that a pool keeps: few flights are long.
const maxSpareIndexes = 64

// Pool is the memory of the scoreboards of one loop. The zero value is ready. A scoreboard
// takes memory only while something is in flight, so idle connections have none.
type Pool struct {
	records []record // [0] is not used
	free    uint32   // list of unused records, by next
	used    int
	touched int       // calls of Scoreboard.record, in debug builds
	flights []*flight // unused
	indexes []*index  // unused
}

// get returns an unused record, all zero.
func (p *Pool) get() uint32 {
	p.used++
	if i := p.free; i != 0 {
		p.free = p.records[i].next
		p.records[i] = record{}
		return i
	}
	if len(p.records) == 0 {
		p.records = make([]record, 1, 64)
	}
	p.records = append(p.records, record{})
	return uint32(len(p.records) - 1)
}

// put takes record i back. When the last of many is back, the memory is freed: a burst of
// loss must not hold it for ever.
func (p *Pool) put(i uint32) {
	p.records[i].next = p.free
	p.free = i
	if p.used--; p.used == 0 && len(p.records) > maxSpare {
		p.records, p.free = nil, 0
	}
}

// getFlight returns an empty flight.
func (p *Pool) getFlight() *flight {
	if n := len(p.flights); n > 0 {
		f := p.flights[n-1]
		p.flights = p.flights[:n-1]
		*f = flight{}
		return f
	}
	return new(flight)
}

// putFlight takes a flight back.
func (p *Pool) putFlight(f *flight) {
	if f.index != nil {
		p.putIndex(f.index)
		f.index = nil
	}
	if len(p.flights) < maxSpare {
		p.flights = append(p.flights, f)
	}
}

// getIndex returns an empty index.
func (p *Pool) getIndex() *index {
	n := len(p.indexes)
	if n == 0 {
		return new(index)
	}
	x := p.indexes[n-1]
	p.indexes = p.indexes[:n-1]
	x.reset()
	return x
}

// putIndex takes an index back.
func (p *Pool) putIndex(x *index) {
	if len(p.indexes) < maxSpareIndexes {
		p.indexes = append(p.indexes, x)
	}
}
