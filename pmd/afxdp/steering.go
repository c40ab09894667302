package afxdp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
)

// Rule names packets that go to the AF_XDP sockets instead of to the kernel.
type Rule = pmd.Rule

// ErrRule reports that a rule is invalid or that there is no room for it.
var ErrRule = errors.New("steering rule")

// maxRanges is the number of separate port ranges that one address, side and protocol can have: MAX_RANGES of
// bpf/steer.c. Single ports do not count.
const maxRanges = 8

// maxSmall is the number of ports that the ranges beyond those may have together: they are entered port by port.
const maxSmall = 4096

// Flags of an address, the same as in bpf/steer.c: one lookup of the address says which further
// maps it has to read, mostly none.
const (
	flagToAll = 1 << iota
	flagToSome
	flagFromAll
	flagFromSome
	flagNeighbor
	flagKeep
)

// sideLater is added to the side in the key of fragments after the first, which have no ports.
const sideLater = 2

// The keys and values of the maps, laid out as in bpf/steer.c. The kernel compares keys byte by byte, so
// padding is named and zero.
type (
	portKey struct {
		Addr  [16]byte
		Port  [2]byte // big-endian
		Proto uint8
		Side  uint8
	}
	rangeKey struct {
		Addr  [16]byte
		Side  uint8
		Proto uint8
		_     uint16
	}
	prefixKey struct {
		Bits uint32
		Addr [16]byte
	}
	portRange struct{ Lo, Hi uint16 }
	rangeSet  [maxRanges]portRange
)

// anyPort also matches packets that have no ports: fragments after the first.
var anyPort = portRange{0, 0xffff}

// Steering is the set of rules of a device. Its methods may be called from any goroutine, while
// packets flow. Each address, port and range changes atomically. Several rules do not change at
// once, but an addition never takes a packet away from another rule, so connections survive a reload.
type Steering struct {
	mu    sync.Mutex
	maps  steerMaps
	nic   *addressFilter // nil without an interface
	all   bool
	addrs map[netip.Addr]*entry
}

// entry is one address: its rules, and the map entries compiled from them. An entry in Steering.addrs is never changed but
// replaced.
type entry struct {
	rules map[Rule]bool
	compiled
}

// compiled are the map entries of an address. They are kept to find those that a change makes stale.
type compiled struct {
	flags  uint32
	ports  map[portKey]bool
	ranges map[rangeKey]rangeSet
	prefix map[prefixKey]uint8 // to the protocol
}

// Add adds rules. Rules that are there already change nothing. On an error no rule is added, unless
// the kernel had no room for an address: the addresses before it are then done.
func (s *Steering) Add(rules ...Rule) error {
	return s.change(nil, rules, func(e *entry, r Rule) { e.rules[r] = true })
}

// Remove removes rules. Rules that are not there are ignored.
func (s *Steering) Remove(rules ...Rule) error {
	return s.change(nil, rules, func(e *entry, r Rule) { delete(e.rules, r) })
}

// Replace makes rules the only ones. What both the old and the new set name is steered without a
// gap.
func (s *Steering) Replace(rules ...Rule) error {
	emptied := func(next map[netip.Addr]*entry) {
		for addr := range s.addrs {
			next[addr] = &entry{rules: make(map[Rule]bool)}
		}
	}
	return s.change(emptied, rules, func(e *entry, r Rule) { e.rules[r] = true })
}

// Rules returns the rules in a fixed order, in their normal form: a single port in both PortLo and
// PortHi, IPv4 addresses unmapped.
func (s *Steering) Rules() []Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Rule
	for _, e := range s.addrs {
		for r := range e.rules {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Rule) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.PortLo, b.PortLo), cmp.Compare(a.PortHi, b.PortHi),
			cmp.Compare(a.Bits, b.Bits), cmp.Compare(laterFragmentsSide(a), laterFragmentsSide(b)))
	})
	return out
}

// Counts are frames that the steering program has seen since it was attached, by what it did.
type Counts struct {
	Steered uint64 // to a socket of this device
	Passed  uint64 // to the kernel, as no rule names them
	Unbound uint64 // to the kernel although a rule names them: their queue is not open
}

// Counts returns the sums of the counters of all CPUs.
func (s *Steering) Counts() (Counts, error) {
	var c Counts
	for i, n := range []*uint64{&c.Steered, &c.Passed, &c.Unbound} {
		var perCPU []uint64
		if err := s.maps.Counters.Lookup(uint32(i), &perCPU); err != nil {
			return c, fmt.Errorf("read the steering counters: %w", err)
		}
		for _, v := range perCPU {
			*n += v
		}
	}
	return c, nil
}

// change edits the rules of each address named, starting from the current ones or from those of start,
// and updates the maps. All are compiled before the first is installed: an invalid rule changes nothing.
func (s *Steering) change(start func(next map[netip.Addr]*entry), rules []Rule, edit func(*entry, Rule)) error {
	if s.all {
		return fmt.Errorf("%w: the device was opened with All, which takes every frame", ErrRule)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[netip.Addr]*entry)
	if start != nil {
		start(next)
	}
	for _, r := range rules {
		r, err := normalize(r)
		if err != nil {
			return err
		}
		if next[r.Addr] == nil {
			next[r.Addr] = s.copyRules(r.Addr)
		}
		edit(next[r.Addr], r)
	}
	// An error of one address leaves all as they were, which it could not after the first install.
	for _, e := range next {
		if err := e.compile(); err != nil {
			return err
		}
	}
	for addr, e := range next {
		if err := s.install(addr, e); err != nil {
			return err
		}
	}
	return nil
}

// copyRules returns an entry with the rules of an address, to be edited: install needs the old one.
func (s *Steering) copyRules(addr netip.Addr) *entry {
	e := &entry{rules: make(map[Rule]bool)}
	if old := s.addrs[addr]; old != nil {
		for r := range old.rules {
			e.rules[r] = true
		}
	}
	return e
}

// laterFragmentsSide returns what a rule adds to its side in a portKey.
func laterFragmentsSide(r Rule) uint8 {
	if r.LaterFragments {
		return sideLater
	}
	return 0
}

// normalize checks r and returns its normal form, so that rules of the same meaning are equal and Remove finds
// what Add was given in another form.
func normalize(r Rule) (Rule, error) {
	if err := r.Validate(); err != nil {
		return r, fmt.Errorf("%w %v: %w", ErrRule, r, err)
	}
	r.Addr = r.Addr.Unmap().WithZone("")
	if r.PortHi == 0 {
		r.PortHi = r.PortLo
	}
	if r.PortLo == 0 && r.PortHi == 0xffff {
		r.PortHi = 0
	}
	if r.Bits != 0 {
		r.Addr = netip.PrefixFrom(r.Addr, int(r.Bits)).Masked().Addr()
	}
	return r, nil
}

// compile turns the rules of an address into map entries: single ports into a hash, ranges into a short
// list for each protocol and side that the program searches from end to end, because a BPF map has no
// ordered lookup.
func (e *entry) compile() error {
	e.compiled = compiled{ports: make(map[portKey]bool), ranges: make(map[rangeKey]rangeSet), prefix: make(map[prefixKey]uint8)}
	lists := make(map[rangeKey][]portRange)
	for r := range e.rules {
		switch {
		case r.Kind == pmd.Neighbor:
			e.flags |= flagNeighbor
			continue
		case r.Kind == pmd.Keep:
			e.flags |= flagKeep
			continue
		case r.Bits != 0:
			e.prefix[prefixKey{uint32(128 - r.Addr.BitLen() + int(r.Bits)), r.Addr.As16()}] = r.Proto
			continue
		}
		all, some := uint32(flagToAll), uint32(flagToSome)
		if r.Kind == pmd.From {
			all, some = flagFromAll, flagFromSome
		}
		if r.Proto == 0 {
			e.flags |= all
			continue
		}
		e.flags |= some
		key := rangeKey{Addr: r.Addr.As16(), Side: uint8(r.Kind), Proto: r.Proto}
		switch {
		case r.LaterFragments:
			e.ports[portKey{Addr: key.Addr, Proto: r.Proto, Side: key.Side + sideLater}] = true
		case r.PortHi == 0:
			lists[key] = append(lists[key], anyPort)
		case r.PortLo == r.PortHi:
			e.ports[portKey{key.Addr, [2]byte{byte(r.PortLo >> 8), byte(r.PortLo)}, r.Proto, key.Side}] = true
		default:
			lists[key] = append(lists[key], portRange{r.PortLo, r.PortHi})
		}
	}
	for key, list := range lists {
		merged, err := e.enterSmall(key, merge(list))
		if err != nil {
			return err
		}
		set := rangeSet{}
		for i := range set {
			set[i] = portRange{1, 0} // empty
		}
		copy(set[:], merged)
		e.ranges[key] = set
	}
	return nil
}

// enterSmall enters the smallest of the ranges port by port, until the others fit, and returns those in their order.
func (e *entry) enterSmall(key rangeKey, list []portRange) ([]portRange, error) {
	size := func(r portRange) int { return int(r.Hi) - int(r.Lo) + 1 }
	bySize := slices.SortedStableFunc(slices.Values(list), func(a, b portRange) int { return cmp.Compare(size(a), size(b)) })
	small, ports := bySize[:max(0, len(list)-maxRanges)], 0
	for _, r := range small {
		ports += size(r)
	}
	if ports > maxSmall {
		return nil, fmt.Errorf("%w: %d separate port ranges for %v protocol %d: %d fit, and the smallest beyond with %d ports, not %d: join some",
			ErrRule, len(list), netip.AddrFrom16(key.Addr).Unmap(), key.Proto, maxRanges, maxSmall, ports)
	}
	for _, r := range small {
		for port := int(r.Lo); port <= int(r.Hi); port++ {
			e.ports[portKey{key.Addr, [2]byte{byte(port >> 8), byte(port)}, key.Proto, key.Side}] = true
		}
	}
	return slices.DeleteFunc(list, func(r portRange) bool { return slices.Contains(small, r) }), nil
}

// merge sorts ranges and joins those that meet, since the program has room for maxRanges only. anyPort stands alone: only
// it matches packets without ports.
func merge(list []portRange) []portRange {
	if slices.Contains(list, anyPort) {
		return []portRange{anyPort}
	}
	slices.SortFunc(list, func(a, b portRange) int { return cmp.Compare(a.Lo, b.Lo) })
	var out []portRange
	for _, r := range list {
		if n := len(out); n > 0 && int(r.Lo) <= int(out[n-1].Hi)+1 {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// install makes e the entry of an address. Ports and ranges are added before the flags of the address announce them, and
// removed after: a packet in between never misses an entry that both sets have. Where a map has no room for the new entry,
// the old one is restored.
func (s *Steering) install(addr netip.Addr, e *entry) error {
	old := s.addrs[addr]
	if old == nil {
		old = &entry{}
	}
	if err := s.put(addr, e, old.flags); err != nil {
		s.deleteStale(e, old)
		_ = s.put(addr, old, e.flags) // the entries exist: writing them again needs no room
		return err
	}
	if is := e.flags & flagNeighbor; is != old.flags&flagNeighbor {
		if err := s.nic.neighbor(addr, is != 0); err != nil {
			return fmt.Errorf("%w: %v: %w", ErrRule, addr, err)
		}
	}
	s.addrs[addr] = e
	if len(e.rules) == 0 {
		delete(s.addrs, addr)
	}
	s.deleteStale(old, e)
	return nil
}

// put writes the entries of e, the flags of the address last: they are what makes the program look for the others. was are
// the flags that the address has in the map.
func (s *Steering) put(addr netip.Addr, e *entry, was uint32) error {
	for key := range e.ports {
		if err := s.maps.Ports.Put(key, uint8(1)); err != nil {
			return mapError(addr, err)
		}
	}
	for key, set := range e.ranges {
		if err := s.maps.Ranges.Put(key, set); err != nil {
			return mapError(addr, err)
		}
	}
	for key, proto := range e.prefix {
		if err := s.maps.Prefixes.Put(key, proto); err != nil {
			return mapError(addr, err)
		}
	}
	switch {
	case e.flags != 0:
		if err := s.maps.Addresses.Put(addr.As16(), e.flags); err != nil {
			return mapError(addr, err)
		}
	case was != 0:
		_ = s.maps.Addresses.Delete(addr.As16()) // fails only where there is none
	}
	return nil
}

// deleteStale deletes the entries of old that e does not have. Delete fails only for a missing entry.
func (s *Steering) deleteStale(old, e *entry) {
	for key := range old.ports {
		if !e.ports[key] {
			_ = s.maps.Ports.Delete(key)
		}
	}
	for key := range old.ranges {
		if _, ok := e.ranges[key]; !ok {
			_ = s.maps.Ranges.Delete(key)
		}
	}
	for key := range old.prefix {
		if e.prefix[key] == 0 {
			_ = s.maps.Prefixes.Delete(key)
		}
	}
}

// mapError wraps an error of a map update; E2BIG says that the map is full (max_entries is MAX_RULES of bpf/steer.c).
func mapError(addr netip.Addr, err error) error {
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("%w: no room for %v: there can be 65536 addresses, ports and ranges each", ErrRule, addr)
	}
	return fmt.Errorf("%w: entry for %v: %w", ErrRule, addr, err)
}
