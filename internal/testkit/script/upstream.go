package script

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/wire"
)

// leniency is what an upstream script compares only in part.
type leniency struct {
	exactTimes bool // local timestamps are compared
	noOption   bool // Linux is set up not to send options of accurate ECN
	sentTo     uint32
	known      counters // to the peer, by the options that were sent
	expected   counters // ... that the script expects
}

// begun has a connection begin.
func (l *leniency) begun() {
	l.known = counters{1, 0, 1} // RFC 9768 3.2.1
	l.expected, l.sentTo = l.known, 0
}

// mayBeUnmarked reports whether a segment that Linux sends as ECT(0) may be sent without: RFC 3168 6.1.4 and 6.1.5
// forbid it for ACKs without data and for what is sent again; an experiment allows it.
func (tr *translation) mayBeUnmarked(k *Packet, g *sent) bool {
	again := int32(g.seg.Seq()-tr.iss-tr.sentTo) < 0
	return tr.upstream && k.ECN == wire.ECT0 && g.ecn == wire.NotECT && (len(g.seg.Payload()) == 0 || again)
}

// counters are those of ECT(0), CE and ECT(1) bytes, in the order of option 172.
type counters [3]uint32

// set takes the counters that an option has.
func (c *counters) set(o *Option) {
	for i, d := 0, o.Data; len(d) >= 3 && i < len(c); i, d = i+1, d[3:] {
		at := i
		if o.Kind == wire.TCPOptAccECN1 {
			at = len(c) - 1 - i
		}
		c[at] = uint32(d[0])<<16 | uint32(d[1])<<8 | uint32(d[2])
	}
}

func isAccECN(o Option) bool { return o.Kind == wire.TCPOptAccECN0 || o.Kind == wire.TCPOptAccECN1 }

// compareAccECN compares what the peer knows after an option of accurate ECN, and returns the other options. An option
// may leave out what has not changed, or be left out with all of that, and the order is free (RFC 9768 3.2.3).
func (l *leniency) compareAccECN(have, want []Option) (h, w []Option, diff string) {
	i, j := slices.IndexFunc(have, isAccECN), slices.IndexFunc(want, isAccECN)
	h, w = slices.DeleteFunc(slices.Clone(have), isAccECN), slices.DeleteFunc(slices.Clone(want), isAccECN)
	if l.noOption {
		return h, w, ""
	}
	if i >= 0 {
		l.known.set(&have[i])
	}
	if j < 0 && i >= 0 {
		return h, w, "options are " + optionString(have) + ", where none of accurate ECN is expected"
	}
	if j >= 0 {
		l.expected.set(&want[j])
	}
	if l.known != l.expected {
		return h, w, fmt.Sprintf("the peer knows counters e0b, ceb, e1b of %d, not %d", l.known, l.expected)
	}
	return h, w, ""
}
