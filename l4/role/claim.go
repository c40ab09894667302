package role

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
)

// Claim is sent on the links themselves, by a gateway that is about to answer for addresses or does. Gateways that hear no message
// of each other, such as two with other keys, decide by claims which one waits.
//
//	 0         4         5       6       7          8             24     32
//	+---------+---------+-------+-------+----------+-------------+------+
//	| magic   | version | state | flags | priority | incarnation | term |
//	+---------+---------+-------+-------+----------+-------------+------+
//	| window, ms (4)    | addresses (1) | 0 (3) | 16 for each address   |
//	+-------------------+---------------+-------+-----------------------+
//
// It has no code: a gateway with another key could not check it. Any host that can send a claim can also answer ARP. A later version
// may be longer.
type Claim struct {
	State    State // Probing or Active
	Index    uint8 // sync.index of the sender
	Priority uint8
	Able     bool // all devices of the sender have a link
	CutOff   bool // the addresses that the sender watches do not answer it any more
	Yields   bool // the sender has just stopped answering
	From     Incarnation
	Term     uint64        // counts take-overs
	Window   time.Duration // Probing: the sender repeats the claim three times in it, and answers after it
	Addrs    []netip.Addr  // that the sender answers for on this link, MaxClaimed at most
}

// MaxClaimed bounds Claim.Addrs, so that a claim fits a frame.
const MaxClaimed = 64

const (
	claimVersion = 1
	claimHead    = 40
	// maxWindow bounds Claim.Window: a gateway waits for another no longer without a further claim.
	maxWindow = MaxLease / probePart
)

var claimMagic = [4]byte{'M', 'R', 'C', 'L'}

// Flags of a claim.
const (
	claimIndex = 1 << iota
	claimAble
	claimYields
	claimCutOff
)

// ErrClaim is the error of ParseClaim.
var ErrClaim = errors.New("role: malformed claim")

// Append appends the claim.
func (c *Claim) Append(b []byte) []byte {
	flags := byte(claimIndex*bit(c.Index == 1) | claimAble*bit(c.Able) | claimYields*bit(c.Yields) | claimCutOff*bit(c.CutOff))
	b = append(append(b, claimMagic[:]...), claimVersion, byte(c.State), flags, c.Priority)
	b = append(b, c.From[:]...)
	b = binary.BigEndian.AppendUint64(b, c.Term)
	b = binary.BigEndian.AppendUint32(b, uint32(c.Window/time.Millisecond))
	addrs := c.Addrs[:min(len(c.Addrs), MaxClaimed)]
	b = append(b, byte(len(addrs)), 0, 0, 0)
	for _, a := range addrs {
		octets := a.As16()
		b = append(b, octets[:]...)
	}
	return b
}

// ParseClaim reads a claim, which a frame may pad.
func ParseClaim(b []byte) (c Claim, err error) {
	if len(b) < claimHead || [4]byte(b) != claimMagic || b[4] < claimVersion {
		return c, ErrClaim
	}
	c.State, c.Priority = State(b[5]), b[7]
	f := b[6]
	c.Index, c.Able, c.Yields, c.CutOff = f&claimIndex, f&claimAble != 0, f&claimYields != 0, f&claimCutOff != 0
	c.From, c.Term = Incarnation(b[8:24]), binary.BigEndian.Uint64(b[24:])
	c.Window = time.Duration(binary.BigEndian.Uint32(b[32:])) * time.Millisecond
	n := int(b[36])
	if c.State != Probing && c.State != Active || c.Window > maxWindow || n > MaxClaimed || len(b) < claimHead+n*addrLen {
		return c, ErrClaim
	}
	for i := range n {
		c.Addrs = append(c.Addrs, netip.AddrFrom16([16]byte(b[claimHead+i*addrLen:])).Unmap())
	}
	return c, nil
}

// outranks reports whether the sender of c ranks before that of o. It is an order of all gateways on a link, the same for each of
// them, and of a pair the same as that of messages (Machine.first).
func (c *Claim) outranks(o *Claim) bool {
	order := cmp.Or(cmp.Compare(bit(o.CutOff), bit(c.CutOff)), cmp.Compare(bit(c.Able), bit(o.Able)), cmp.Compare(c.Priority, o.Priority))
	if c.State == Active && o.State == Active {
		order = cmp.Or(order, cmp.Compare(c.Term, o.Term))
	}
	return cmp.Or(order, cmp.Compare(o.Index, c.Index), bytes.Compare(o.From[:], c.From[:])) > 0
}
