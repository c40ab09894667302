package ip

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// dadTransmits is how many solicitations ask for a duplicate of an IPv6 address (RFC 4862 5.1,
// DupAddrDetectTransmits).
const dadTransmits = 1

// addrTimer runs when the timer of an address has expired: it is being checked, announced, or too old.
func (n *Node) addrTimer(i int) {
	x := &n.local.slot[i]
	switch x.state {
	case addrTentative:
		n.continueDAD(x, i)
	case addrPreferred, addrDeprecated:
		n.maintainAddr(x, i)
	}
}

// continueDAD sends the next probe for x, or makes it ours when nobody answered.
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

// maintainAddr announces x, and ends its preference and its validity in time (RFC 4862 5.5.4).
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

// announce tells the neighbours of x.
func (n *Node) announce(x *address) {
	if x.addr.Is4() {
		n.announceARP(x)
	} else {
		n.announceND(x)
	}
}

// armAddr sets the timer of address i.
func (n *Node) armAddr(i int, t clock.Time) {
	if id := n.base.addrs + uint32(i); t == clock.Never {
		n.wheel.Stop(id)
	} else {
		n.wheel.Arm(id, t)
	}
}

// handleDuplicate gives up the tentative address x: another host has it (RFC 4862 5.4.5, RFC 5227 2.1.1). A
// stable address of our own making is tried again with the next number (RFC 7217 6).
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

// deadline returns the end of a lifetime of s seconds from now; 0xffffffff is for ever (RFC 4861 4.6.2).
func (n *Node) deadline(s uint32) clock.Time {
	if s == 0xffffffff {
		return clock.Never
	}
	return n.now.Add(time.Duration(s) * time.Second)
}
