package ip

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// The life of an address (RFC 4862 5.4 and 5.5.4; RFC 5227 for IPv4):
//
//	tentative --no answer to the probes--> preferred --preferred lifetime--> deprecated --valid lifetime--> removed
//	    |                                     ^                                  |
//	    | another host has it                 +-------- lifetime prolonged ------+
//	    v
//	duplicate (a generated address has its next attempt in another slot)
//
// One timer per address serves all states.

// dadTransmits is the number of solicitations sent for a tentative IPv6 address (RFC 4862 5.1, DupAddrDetectTransmits).
const dadTransmits = 1

// addrTimer runs when the timer of the address in slot i expires.
func (n *Node) addrTimer(i int) {
	x := &n.local.slot[i]
	switch x.state {
	case addrTentative:
		n.continueDAD(x, i)
	case addrPreferred, addrDeprecated:
		n.maintainAddr(x, i)
	}
}

// continueDAD sends the next probe for x, or assigns it when the last wait ended without an answer. RFC 5227 2.1.1 spaces
// the probes at random, so that hosts that start together do not probe in step. RFC 4862 5.4 waits RetransTimer.
func (n *Node) continueDAD(x *address, i int) {
	want, wait := uint8(probeNum), n.rand.Between(probeMin, probeMax)
	if !x.addr.Is4() {
		want, wait = dadTransmits, n.links[x.dev].retrans
	}
	if x.sent == want {
		n.assign(x, i)
		return
	}
	if x.sent++; x.addr.Is4() {
		if x.sent == want {
			wait = announceWait
		}
		n.probeARP(x)
	} else {
		n.probeND(x)
	}
	n.armAddr(i, n.now.Add(wait))
}

// maintainAddr announces x, and ends its preferred and valid lifetimes (RFC 4862 5.5.4). A deprecated address still
// receives, and existing connections keep it; only new ones choose another. One whose preferred lifetime was prolonged
// becomes preferred again.
func (n *Node) maintainAddr(x *address, i int) {
	if n.now >= x.valid {
		n.removeAddr(x, i)
		return
	}
	if n.now >= x.preferred {
		x.state = addrDeprecated
	} else if x.state == addrDeprecated {
		x.state = addrPreferred
	}
	next := x.valid
	if x.state == addrPreferred {
		next = min(next, x.preferred)
	}
	if x.sent < announceNum && !n.cfg.Follower {
		x.sent++
		n.announce(x)
		if x.sent < announceNum {
			next = min(next, n.now.Add(announceInterval))
		}
	}
	n.armAddr(i, next)
}

// announce sends an announcement of x: neighbours that knew an earlier holder update their caches at once.
func (n *Node) announce(x *address) {
	if x.addr.Is4() {
		n.announceARP(x)
	} else {
		n.announceND(x)
	}
}

// armAddr sets the timer of the address in slot i. An infinite lifetime needs none.
func (n *Node) armAddr(i int, t clock.Time) {
	if id := n.base.addrs + uint32(i); t == clock.Never {
		n.wheel.Stop(id)
	} else {
		n.wheel.Arm(id, t)
	}
}

// handleDuplicate withdraws the tentative address x, which another host has (RFC 4862 5.4.5, RFC 5227 2.1.1). The entry
// stays, as duplicate, so that the user sees why the address does not work. A generated address is replaced by the one
// with the next DAD_Counter (RFC 7217 6). RFC 4862 5.4.5 would stop IPv6 on the link for an address made from the MAC;
// with RFC 7217 the MAC does not decide, so a conflict does not mean two equal MACs.
func (n *Node) handleDuplicate(x *address) {
	if x.state != addrTentative {
		return
	}
	n.stats.Duplicates++
	n.solicitedGroup(x, false)
	x.state = addrDuplicate
	n.armAddr(n.slotOf(x), clock.Never)
	old := *x
	n.notifyChange(&Change{Kind: AddrDuplicate, Dev: x.dev, Addr: x.addr, Prefix: x.prefix, Origin: x.origin})
	if old.origin == RouterAdvert || old.origin == Automatic {
		n.regenerateAddr(&old)
	}
}

// slotOf returns the slot of x.
func (n *Node) slotOf(x *address) int {
	for i := range n.local.slot {
		if &n.local.slot[i] == x {
			return i
		}
	}
	return -1
}

// deadline returns the end of a lifetime of s seconds from now; 0xffffffff is infinity (RFC 4861 4.6.2).
func (n *Node) deadline(s uint32) clock.Time {
	if s == 0xffffffff {
		return clock.Never
	}
	return n.now.Add(time.Duration(s) * time.Second)
}
