package stack

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/pmd"
)

// Target names what serves the packets of a Claim.
type Target uint8

// The targets that are not handlers. The zero Target is none: no claim matches.
const (
	ToKernel Target = 1 + iota // the kernel's stack: drivers leave the packets there
	ToDrop                     // no handler: the loop drops them (packet.DropRule)
	firstHandler
)

// maxHandlers bounds the handlers of one loop: Target is one byte,
// of which `offered` is a bit.
const maxHandlers = offered - int(firstHandler)

// ToHandler returns the target that is the handler at place i of Dispatcher.
func ToHandler(i int) Target { return firstHandler + Target(i) }

// handler returns the place of the handler that t names; false for the other targets.
func (t Target) handler() (int, bool) { return int(t) - int(firstHandler), t >= firstHandler }

// String names the target as messages show it.
func (t Target) String() string {
	switch t {
	case 0:
		return "none"
	case ToKernel:
		return "kernel"
	case ToDrop:
		return "drop"
	}
	return fmt.Sprintf("handler %d", t-firstHandler)
}

// Claim assigns the packets that a rule names to a target. A rule with Bits claims a
// prefix: with a protocol only that protocol's packets, else every packet to its
// addresses. Rules of kind Keep are not claims: ToKernel means the same.
type Claim struct {
	pmd.Rule
	Target Target
}

// ErrClaim reports a claim that means nothing, or two claims that assign one packet to
// two targets.
var ErrClaim = errors.New("address table")

// AddressTable maps addresses, protocols and ports to what serves them, for all loops
// of a process. It is the one source for the loops' dispatchers and, through Rules, for
// the drivers' steering: a packet that no claim names stays with the kernel.
//
// The more specific claim wins, whatever the order of the claims:
//
//	neighbor   ARP and neighbour discovery about an address
//	to         one port, then the smaller range of ports, then a protocol, then the whole address;
//	           later fragments before their protocol
//	prefix     the longest
//	from       a source address, as to
//	fallback   what a device brings that no claim names (SetFallback)
//
// A packet that its handler drops because it has neither a service nor a flow for it
// goes to the next claim of another handler in this order: see Dispatcher.
//
// Replace may be called from any goroutine while packets flow. A loop sees either the
// old table or the new one for a whole batch.
type AddressTable struct {
	current atomic.Pointer[lookup]
}

// NewAddressTable returns an empty table: no packet has a target.
func NewAddressTable() *AddressTable {
	t := new(AddressTable)
	t.current.Store(newLookup())
	return t
}

// Replace makes claims the only ones. On an error, which is an ErrClaim, the table
// stays as it was.
func (t *AddressTable) Replace(claims []Claim) error {
	l := newLookup()
	for _, c := range claims {
		if err := l.add(c); err != nil {
			return err
		}
	}
	if err := l.finish(); err != nil {
		return err
	}
	l.claims = slices.Clone(claims)
	t.current.Store(l)
	return nil
}

// Claims returns the claims in use. The caller must not write to them.
func (t *AddressTable) Claims() []Claim { return t.current.Load().claims }

// Rules returns the steering rules that bring drivers' packets to the loops: each claim
// of a handler or of ToDrop once, and a Keep for each address that ToKernel claims as a
// whole. A part of an address that ToKernel claims has no rule: packets that nothing
// names stay with the kernel anyway, and drivers cannot leave out a part of an address
// that a handler claims. Such packets are dropped by the dispatcher (packet.DropNotOurs).
func Rules(claims []Claim) (rules []pmd.Rule) {
	seen := map[pmd.Rule]bool{}
	for _, c := range claims {
		r := c.Rule
		if c.Target == ToKernel {
			if c.Proto != 0 || c.Bits != 0 || c.Kind != pmd.To {
				continue
			}
			r = pmd.Rule{Addr: c.Addr, Kind: pmd.Keep}
		}
		if !seen[r] {
			seen[r] = true
			rules = append(rules, r)
		}
	}
	return rules
}

// addrKey is an address as the table has it: IPv4 is IPv4-mapped (RFC 4291 2.5.5.2), as
// in the XDP program.
type addrKey [16]byte

// side distinguishes packets to an address from packets from it.
type side uint8

const (
	sideTo side = iota
	sideFrom
)

// portKey is one port of an address. Most claims are for one port, so they cost one
// look-up.
type portKey struct {
	addr  addrKey
	port  uint16
	proto uint8
	side  side
}

// lookup is an AddressTable made ready for packets. It does not change once it is
// published.
type lookup struct {
	claims   []Claim
	ports    map[portKey]Target
	addrs    map[addrKey]*addrClaims
	prefixes []prefixClaim // the longest first
}

// addrClaims are the claims of one address but those of single ports.
type addrClaims struct {
	neighbor Target
	sides    [2]sideClaims // by side
}

// sideClaims are the claims of packets to an address, or from it.
type sideClaims struct {
	all    Target       // every packet
	protos []protoClaim // later fragments first, then the smallest range of ports
}

// protoClaim is a protocol of an address, or a range of its ports. The range 0-65535
// includes packets without ports. With rest it names fragments after the first, and
// nothing else.
type protoClaim struct {
	proto  uint8
	rest   bool
	lo, hi uint16
	to     Target
}

// prefixClaim is a prefix. Proto 0 is every protocol.
type prefixClaim struct {
	prefix netip.Prefix
	proto  uint8
	to     Target
}

func newLookup() *lookup {
	return &lookup{ports: map[portKey]Target{}, addrs: map[addrKey]*addrClaims{}}
}

// add enters one claim.
func (l *lookup) add(c Claim) error {
	if why := c.wrong(); why != "" {
		return fmt.Errorf("%w: %s: %s", ErrClaim, c.Addr, why)
	}
	a := c.Addr.Unmap()
	switch {
	case c.Bits != 0:
		p := netip.PrefixFrom(a, int(c.Bits)).Masked()
		return l.addPrefix(prefixClaim{p, c.Proto, c.Target})
	case c.Kind == pmd.Neighbor:
		return set(&l.at(a).neighbor, c)
	case c.Proto == 0:
		return set(&l.at(a).sides[sideOf(c.Kind)].all, c)
	}
	lo, hi := c.PortLo, c.PortHi
	switch {
	case lo == 0 && hi == 0:
		hi = 1<<16 - 1
	case hi == 0:
		hi = lo
	}
	if lo == hi {
		k := portKey{a.As16(), lo, c.Proto, sideOf(c.Kind)}
		to := l.ports[k]
		err := set(&to, c)
		l.ports[k] = to
		return err
	}
	s := &l.at(a).sides[sideOf(c.Kind)]
	s.protos = append(s.protos, protoClaim{c.Proto, c.LaterFragments, lo, hi, c.Target})
	return nil
}

// wrong returns why a claim means nothing, "" if it means something.
func (c *Claim) wrong() string {
	r := c.Rule
	if r.Bits != 0 && r.Proto == 0 { // a prefix of every protocol, which Rule.Validate rejects
		r.Bits = 0
	}
	switch err := r.Validate(); {
	case err != nil:
		return err.Error()
	case c.Kind == pmd.Keep:
		return "a claim for the kernel has the target ToKernel"
	case c.Target == 0:
		return "the claim has no target"
	}
	return ""
}

// sideOf returns the side that a match looks at.
func sideOf(m pmd.RuleKind) side {
	if m == pmd.From {
		return sideFrom
	}
	return sideTo
}

// at returns the claims of an address.
func (l *lookup) at(a netip.Addr) *addrClaims {
	k := addrKey(a.As16())
	if l.addrs[k] == nil {
		l.addrs[k] = new(addrClaims)
	}
	return l.addrs[k]
}

// set assigns what t stands for to the target of c. It may not have another one already.
func set(t *Target, c Claim) error {
	if *t != 0 && *t != c.Target {
		return fmt.Errorf("%w: %s is claimed for %s and for %s", ErrClaim, describe(c.Rule), *t, c.Target)
	}
	*t = c.Target
	return nil
}

// describe names the packets of a rule in an error.
func describe(r pmd.Rule) string {
	s := r.Addr.String()
	if r.Bits != 0 {
		s = fmt.Sprintf("%s/%d", s, r.Bits)
	}
	if r.Proto != 0 {
		s += fmt.Sprintf(" protocol %d", r.Proto)
	}
	switch {
	case r.PortHi > r.PortLo:
		s += fmt.Sprintf(" ports %d-%d", r.PortLo, r.PortHi)
	case r.PortLo != 0 || r.PortHi != 0:
		s += fmt.Sprintf(" port %d", r.PortLo)
	}
	return s
}

// addPrefix enters a prefix.
func (l *lookup) addPrefix(p prefixClaim) error {
	for _, o := range l.prefixes {
		if o.prefix == p.prefix && o.proto == p.proto && o.to != p.to {
			return fmt.Errorf("%w: %s is claimed for %s and for %s", ErrClaim, p.prefix, o.to, p.to)
		}
	}
	l.prefixes = append(l.prefixes, p)
	return nil
}

// finish sorts what the look-ups try in order, and finds ranges of ports that two
// targets claim.
func (l *lookup) finish() error {
	for k, a := range l.addrs {
		for i := range a.sides {
			s := &a.sides[i]
			slices.SortStableFunc(s.protos, protoClaim.compare)
			if err := s.overlap(); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrClaim, netip.AddrFrom16(k).Unmap(), err)
			}
		}
	}
	slices.SortStableFunc(l.prefixes, func(a, b prefixClaim) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
	return nil
}

// compare orders claims of one side: the more specific first. Later fragments are less than a protocol.
func (c protoClaim) compare(o protoClaim) int {
	if c.rest != o.rest {
		if c.rest {
			return -1
		}
		return 1
	}
	return cmp.Compare(c.hi-c.lo, o.hi-o.lo)
}

// overlap reports two ranges with different targets of which neither contains the
// other: a port in both would have two targets. A range inside of a larger one is more
// specific, and wins.
func (s *sideClaims) overlap() error {
	for i, a := range s.protos {
		for _, b := range s.protos[i+1:] { // b is at least as large as a
			apart := a.proto != b.proto || a.rest != b.rest || a.hi < b.lo || b.hi < a.lo
			inside := b.lo <= a.lo && a.hi <= b.hi && a.hi-a.lo < b.hi-b.lo
			if !apart && !inside && a.to != b.to {
				return fmt.Errorf("protocol %d: ports %d-%d and %d-%d are claimed for %s and for %s", a.proto, a.lo, a.hi, b.lo, b.hi, a.to, b.to)
			}
		}
	}
	return nil
}

// find returns the target of packets to (or from) an address; 0 is none. Ports count
// where has is true. rest is a fragment after the first. Claims for the target not are
// as if they were not there.
func (l *lookup) find(a addrKey, on side, proto uint8, port uint16, has, rest bool, not Target) Target {
	if has {
		if to := l.ports[portKey{a, port, proto, on}]; to != 0 && to != not {
			return to
		}
	}
	claims := l.addrs[a]
	if claims == nil {
		return 0
	}
	s := &claims.sides[on]
	for i := range s.protos {
		c := &s.protos[i]
		switch {
		case c.proto != proto, c.to == not:
		case c.rest:
			if rest {
				return c.to
			}
		case c.lo == 0 && c.hi == 1<<16-1, has && c.lo <= port && port <= c.hi:
			return c.to
		}
	}
	if s.all == not {
		return 0
	}
	return s.all
}

// findPrefix returns the target of the longest prefix with a; 0 is none. See find for
// not.
func (l *lookup) findPrefix(a addrKey, proto uint8, not Target) Target {
	if len(l.prefixes) == 0 {
		return 0
	}
	addr := netip.AddrFrom16(a).Unmap()
	for i := range l.prefixes {
		p := &l.prefixes[i]
		if (p.proto == 0 || p.proto == proto) && p.to != not && p.prefix.Contains(addr) {
			return p.to
		}
	}
	return 0
}

// findNeighbor returns the target of ARP and neighbour discovery about an address; 0 is
// none.
func (l *lookup) findNeighbor(a addrKey) Target {
	if claims := l.addrs[a]; claims != nil {
		return claims.neighbor
	}
	return 0
}
