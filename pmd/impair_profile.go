package pmd

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Profile defines what an Impair wrapper does to packets, for each direction. The zero value is a
// perfect link. Profiles compare with ==.
//
// As text it is a list of words, the same in virtual and in real time:
//
//	delay=10ms±2ms loss=1% rate=100mbit queue=64 seed=7
//	loss=1% rx: delay=5ms tx: delay=20ms±5ms/pareto fifo
//
// Words stand for both directions until "rx:" or "tx:" chooses one. In the order in which they work
// on a packet:
//
//	mtu=1400           lose packets with more than 1400 bytes behind the Ethernet header and its tags
//	loss=1%            lose each packet with this probability, independently
//	burst=P,R[,B[,G]]  lose packets in bursts (Gilbert and Elliott): before each packet a good link
//	                   turns bad with probability P, a bad one good with R; a bad link loses packets
//	                   with probability B (100%), a good one with G (0%)
//	dup=0.1%           send a copy behind the packet; the copy is not copied again, but meets all
//	                   that follows on its own
//	corrupt=1%[,N]     flip N different bits (1), anywhere in the packet
//	ce=1%              mark Congestion Experienced (RFC 3168) where the packet is ECN-capable
//	rate=100mbit       send one packet after the other at this many bits a second, of the bytes that
//	                   the descriptor counts; units bit, kbit, mbit, gbit (powers of 1000)
//	queue=64           lose packets that find this many (or, with a unit such as 64kB or 64KiB, so
//	                   many bytes) waiting for the rate, with the packet that is being sent
//	delay=D[±J[/SHAPE]] hold each packet for D; the jitter J is the bound of a uniform distribution, or the
//	                   standard deviation of a normal or pareto one ("+-" serves as "±")
//	reorder=1%[,D]     hold the packet for D (1ms) longer than the others, which overtake it
//	fifo               jitter never lets a packet overtake another; reorder still does
//	seed=7             of the random source, for both directions
type Profile struct {
	Rx, Tx Impairment
	Seed   uint64
}

// Impairment is one direction of a Profile. The zero value does nothing.
type Impairment struct {
	MTU         int
	Loss        Percent
	Burst       Burst
	Dup         Percent
	Corrupt     Percent
	CorruptBits int // 0 is 1
	CE          Percent
	Rate        BitRate // 0 is without limit
	Queue       Queue   // wants a Rate
	Delay       time.Duration
	Jitter      time.Duration
	Shape       Shape
	Reorder     Percent
	ReorderHold time.Duration // 0 is 1 ms
	FIFO        bool
}

// Percent is a probability, from 0 to 100.
type Percent float64

// String returns the percentage as profiles write it.
func (p Percent) String() string { return strconv.FormatFloat(float64(p), 'f', -1, 64) + "%" }

// Burst holds the parameters of the Gilbert-Elliott model. The zero value loses nothing.
type Burst struct {
	Start    Percent // good turns bad
	End      Percent // bad turns good
	LostBad  Percent // of the packets on a bad link; profiles say 100% where they leave it out
	LostGood Percent // of the packets on a good link
}

// BitRate is a number of bits a second.
type BitRate uint64

// String returns the rate in the largest unit in which it is a whole number.
func (r BitRate) String() string {
	for _, u := range rateUnits {
		if uint64(r)%u.size == 0 {
			return strconv.FormatUint(uint64(r)/u.size, 10) + u.name
		}
	}
	return "" // the last unit is 1
}

// Queue is a limit in packets or in bytes; 0 is none.
type Queue struct{ Packets, Bytes int }

// Shape is the distribution of jitter.
type Shape uint8

// The shapes of jitter.
const (
	Uniform Shape = iota // between -J and +J
	Normal               // standard deviation J, cut at 6 J
	Pareto               // standard deviation J, exponent 3: a heavy tail of late packets
)

var shapeNames = []string{Uniform: "uniform", Normal: "normal", Pareto: "pareto"}

// String returns the name that profiles use.
func (s Shape) String() string {
	if int(s) < len(shapeNames) {
		return shapeNames[s]
	}
	return fmt.Sprintf("shape(%d)", uint8(s))
}

// unit is a suffix of a quantity and what it multiplies.
type unit struct {
	name string
	size uint64
}

// Largest first: formatting takes the first that divides. Parsing takes the one whose name fits.
var (
	rateUnits = []unit{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
	byteUnits = []unit{{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1}}
)

// String returns the profile as text that ParseProfile turns into the same profile, so that a log line or a
// test failure can be run again.
func (p Profile) String() string {
	var w words
	if p.Rx == p.Tx {
		w.impairment(p.Rx)
	} else {
		w.add("rx:")
		w.impairment(p.Rx)
		w.add("tx:")
		w.impairment(p.Tx)
	}
	if p.Seed != 0 {
		w.add(fmt.Sprintf("seed=%d", p.Seed))
	}
	return strings.Join(w, " ")
}

// words collects the words of a profile's text.
type words []string

func (w *words) add(word string) { *w = append(*w, word) }

// percent adds a probability and its details, unless it is 0: then neither has an effect.
func (w *words) percent(name string, p Percent, more string) {
	if p != 0 {
		w.add(name + "=" + p.String() + more)
	}
}

// impairment writes the words in the order in which they work.
func (w *words) impairment(d Impairment) {
	if d.MTU != 0 {
		w.add(fmt.Sprintf("mtu=%d", d.MTU))
	}
	w.percent("loss", d.Loss, "")
	if b := d.Burst; b != (Burst{}) {
		w.add(fmt.Sprintf("burst=%v,%v,%v,%v", b.Start, b.End, b.LostBad, b.LostGood))
	}
	w.percent("dup", d.Dup, "")
	bits := ""
	if d.CorruptBits != 0 {
		bits = fmt.Sprintf(",%d", d.CorruptBits)
	}
	w.percent("corrupt", d.Corrupt, bits)
	w.percent("ce", d.CE, "")
	if d.Rate != 0 {
		w.add("rate=" + d.Rate.String())
	}
	w.queue(d.Queue)
	w.delay(d)
	hold := ""
	if d.ReorderHold != 0 {
		hold = "," + d.ReorderHold.String()
	}
	w.percent("reorder", d.Reorder, hold)
	if d.FIFO {
		w.add("fifo")
	}
}

// queue writes bytes in the unit B, which is exact for every limit.
func (w *words) queue(q Queue) {
	if q.Packets != 0 {
		w.add(fmt.Sprintf("queue=%d", q.Packets))
	}
	if q.Bytes != 0 {
		w.add(fmt.Sprintf("queue=%dB", q.Bytes))
	}
}

// delay writes a delay of 0 too where there is jitter, which has no word of its own.
func (w *words) delay(d Impairment) {
	if d.Delay == 0 && d.Jitter == 0 {
		return
	}
	s := "delay=" + d.Delay.String()
	if d.Jitter != 0 {
		s += "±" + d.Jitter.String()
	}
	if d.Shape != Uniform {
		s += "/" + d.Shape.String()
	}
	w.add(s)
}
