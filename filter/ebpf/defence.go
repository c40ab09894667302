package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

//go:generate go tool -modfile=../../internal/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" defence bpf/defence.c
//go:generate go tool -modfile=../../internal/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" chained bpf/chained.c

// DefenceObject is the name under which OpenDefence loads the program. `filter attach defence --xdp IF` attaches it.
const DefenceObject = "defence"

// MaxRules is the number of rules that a Defence counts: their numbers are below it.
const MaxRules = 4096

// Verdict is the fate of packets from a prefix. The longest prefix that holds a source decides.
type Verdict struct {
	Prefix netip.Prefix
	Rule   uint32        // which counts what is dropped, below MaxRules
	Accept bool          // packets pass, whatever shorter prefixes say; without Rate
	Rate   uint32        // packets a second that each source of the prefix may send: an IPv4 address or an IPv6 /64; 0: none
	Burst  uint32        // packets that a source may send at once; 0: a tenth of a second's, at least 1
	For    time.Duration // 0: until it is removed
}

// Defence is the XDP program that drops and limits sources: its maps, loaded in a store or for this process alone. Verdicts
// in a store stay when the process ends. Its methods may be called by any goroutine.
type Defence struct {
	front4, exact4, exact6, drop4, drop6, used, buckets, counters, syn *ebpf.Map

	front *front // nil: another process may write the maps

	mu sync.RWMutex // Put marks a table as used that unmark finds to be empty
}

// maps returns the maps by their names in the object.
func (d *Defence) maps() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		defenceMapFront4: &d.front4, defenceMapExact4: &d.exact4, defenceMapExact6: &d.exact6, defenceMapDrop4: &d.drop4, defenceMapDrop6: &d.drop6,
		defenceMapUsed: &d.used, defenceMapBuckets: &d.buckets, defenceMapCounters: &d.counters, defenceMapSyn: &d.syn,
	}
}

// verdictValue is struct verdict of bpf/maps.h.
type verdictValue struct {
	Until, Each, Ahead uint64
	Rule               uint32
	Action, Bits       uint16
}

// The actions of struct verdict.
const (
	actionDrop = iota
	actionLimit
	actionAccept
)

// The tables of verdicts: the indices of the map used.
const (
	tableExact4 = iota
	tablePrefix4
	tableExact6
	tablePrefix6
	tableFront4
	tables
)

// The keys of the maps, as in bpf/defence.c. Those of the exact tables are addresses.
type (
	prefixKey4 struct {
		Bits uint32
		Addr [4]byte
	}
	prefixKey6 struct {
		Bits uint32
		Addr [16]byte
	}
	ruleCount struct{ Packets, Bytes uint64 }
	synState  struct {
		Bucket, Answered uint64
		Rate, Burst      uint32
	}
)

// OpenDefence opens the program of a store and loads it where it is not loaded yet. It is attached to no interface:
// Store.AttachXDP does that.
func (s *Store) OpenDefence() (*Defence, error) {
	o, err := parseObject(_DefenceBytes)
	if err != nil {
		return nil, err
	}
	o.name, o.about.Source = DefenceObject, "millrace"
	if _, err := s.loadObject(o); err != nil && !errors.Is(err, ErrExists) {
		return nil, err
	}
	d := &Defence{}
	for name, m := range d.maps() {
		if *m, err = s.findMap(DefenceObject + "/" + name); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Close returns the maps. In a store the program and its verdicts stay.
func (d *Defence) Close() (err error) {
	for _, m := range d.maps() {
		err = errors.Join(err, (*m).Close())
	}
	return err
}

// Put adds verdicts, or replaces those of the same prefixes. Each is in force when Put returns, for packets that come after.
// On an error those before it are in force.
func (d *Defence) Put(list ...Verdict) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	var marked [tables]bool
	for _, v := range list {
		if err := d.put(v, now, &marked); err != nil {
			return fmt.Errorf("verdict on %v: %w", v.Prefix, err)
		}
	}
	return nil
}

// put writes one verdict, and marks its table as used, where that is not done. Puts do not wait for each other.
func (d *Defence) put(v Verdict, now time.Duration, marked *[tables]bool) error {
	value, err := v.value(now)
	if err != nil {
		return err
	}
	table, key := placeOf(v.Prefix)
	if table == tableExact4 && d.front != nil {
		if placed, err := d.putFront(key.([4]byte), value); placed || err != nil {
			return err
		}
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.table(table).Put(key, value); err != nil || marked[table] {
		return err
	}
	marked[table] = true
	return d.used.Put(table, uint32(1)) // after the entry: see unmark
}

// value checks a verdict and returns its value in the map.
func (v Verdict) value(now time.Duration) (w verdictValue, err error) {
	if !v.Prefix.IsValid() || v.Rule >= MaxRules || v.For < 0 || v.Accept && v.Rate != 0 {
		return w, fmt.Errorf("%w: verdict on %v by rule %d for %v", ErrValue, v.Prefix, v.Rule, v.For)
	}
	w = verdictValue{Rule: v.Rule, Bits: uint16(unmapped(v.Prefix).Bits())}
	switch {
	case v.Accept:
		w.Action = actionAccept
	case v.Rate != 0:
		burst := v.Burst
		if burst == 0 {
			burst = max(1, v.Rate/10)
		}
		w.Action, w.Each = actionLimit, max(1, uint64(time.Second)/uint64(v.Rate))
		w.Ahead = w.Each * uint64(burst)
	}
	if v.For != 0 {
		w.Until = uint64(now + v.For)
	}
	return w, nil
}

// verdict is the inverse of value. For is at most 0 where it has expired.
func (w *verdictValue) verdict(p netip.Prefix, now time.Duration) (v Verdict, expired bool) {
	v = Verdict{Prefix: p, Rule: w.Rule, Accept: w.Action == actionAccept}
	if w.Action == actionLimit {
		v.Rate, v.Burst = uint32((uint64(time.Second)+w.Each/2)/w.Each), uint32(w.Ahead/w.Each)
	}
	if w.Until != 0 {
		v.For = time.Duration(w.Until) - now
	}
	return v, w.Until != 0 && v.For <= 0
}

// unmapped returns the IPv4 prefix of an IPv4-mapped one (RFC 4291 2.5.5.2).
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked()
	}
	return p.Masked()
}

// placeOf returns the table of a prefix and its key there.
func placeOf(p netip.Prefix) (table uint32, key any) {
	p = unmapped(p)
	switch a := p.Addr(); {
	case a.Is4() && p.IsSingleIP():
		return tableExact4, a.As4()
	case a.Is4():
		return tablePrefix4, prefixKey4{uint32(p.Bits()), a.As4()}
	case p.IsSingleIP():
		return tableExact6, a.As16()
	default:
		return tablePrefix6, prefixKey6{uint32(p.Bits()), a.As16()}
	}
}

func (d *Defence) table(n uint32) *ebpf.Map {
	return [...]*ebpf.Map{d.exact4, d.drop4, d.exact6, d.drop6}[n]
}

// Remove removes the verdict on a prefix. One that is not there is removed already.
func (d *Defence) Remove(p netip.Prefix) error {
	if !p.IsValid() {
		return fmt.Errorf("%w: prefix %v", ErrValue, p)
	}
	table, key := placeOf(p)
	if table == tableExact4 && d.front != nil {
		if err := d.removeFront(key.([4]byte)); err != nil {
			return fmt.Errorf("verdict on %v: %w", p, err)
		}
	}
	if err := d.table(table).Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("verdict on %v: %w", p, err)
	}
	return nil
}

// Verdicts calls each with the verdicts that are in force. For is the time that is left; 0: it does not end.
func (d *Defence) Verdicts(each func(Verdict)) error {
	return d.walk(func(_ uint32, v Verdict, expired bool) {
		if !expired {
			each(v)
		}
	})
}

// Expire removes the verdicts that have expired and returns how many. They have no effect any more, but take room, and
// a table with entries is looked up for each packet.
func (d *Defence) Expire() (n int, err error) {
	var gone []netip.Prefix
	var left [tables]int
	err = d.walk(func(table uint32, v Verdict, expired bool) {
		if expired {
			gone = append(gone, v.Prefix)
		} else {
			left[table]++
		}
	})
	if err != nil {
		return 0, err
	}
	for _, p := range gone {
		again, e := d.removeExpired(p)
		if table, _ := placeOf(p); again {
			left[table]++
			continue
		}
		err = errors.Join(err, e)
		n++
	}
	for table, entries := range left {
		if entries == 0 && table != tableFront4 {
			err = errors.Join(err, d.unmark(uint32(table)))
		}
	}
	return n, err
}

// removeExpired removes the verdict on a prefix, unless another process has put one there again meanwhile.
func (d *Defence) removeExpired(p netip.Prefix) (again bool, err error) {
	now, err := monotonic()
	if err != nil {
		return false, err
	}
	var w verdictValue
	table, key := placeOf(p)
	if found, err := d.lookUpFront(table, key, &w); err != nil {
		return false, err
	} else if !found && errors.Is(d.table(table).Lookup(key, &w), ebpf.ErrKeyNotExist) {
		return false, nil
	}
	if _, expired := w.verdict(p, now); !expired {
		return true, nil
	}
	return false, d.Remove(p)
}

// unmark notes that a table is empty, if it is. Another process may put an entry meanwhile, and marks the table after
// it: either this one finds the entry, or that mark is the later one.
func (d *Defence) unmark(table uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.empty(table) {
		return nil
	}
	if err := d.used.Put(table, uint32(0)); err != nil || d.empty(table) {
		return err
	}
	return d.used.Put(table, uint32(1))
}

func (d *Defence) empty(table uint32) bool {
	key := make([]byte, d.table(table).KeySize())
	return errors.Is(d.table(table).NextKey(nil, &key), ebpf.ErrKeyNotExist)
}

// walk calls each for all entries of all tables.
func (d *Defence) walk(each func(table uint32, v Verdict, expired bool)) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	visit := func(table uint32, p netip.Prefix, w *verdictValue) {
		v, expired := w.verdict(p, now)
		each(table, v, expired)
	}
	return errors.Join(
		d.walkFront(func(k [4]byte, w *verdictValue) { visit(tableFront4, netip.PrefixFrom(netip.AddrFrom4(k), 32), w) }),
		walk(d.exact4, func(k [4]byte, w *verdictValue) { visit(tableExact4, netip.PrefixFrom(netip.AddrFrom4(k), 32), w) }),
		walk(d.exact6, func(k [16]byte, w *verdictValue) { visit(tableExact6, netip.PrefixFrom(netip.AddrFrom16(k), 128), w) }),
		walk(d.drop4, func(k prefixKey4, w *verdictValue) {
			visit(tablePrefix4, netip.PrefixFrom(netip.AddrFrom4(k.Addr), int(k.Bits)), w)
		}),
		walk(d.drop6, func(k prefixKey6, w *verdictValue) {
			visit(tablePrefix6, netip.PrefixFrom(netip.AddrFrom16(k.Addr), int(k.Bits)), w)
		}),
	)
}

func walk[K any](m *ebpf.Map, visit func(K, *verdictValue)) error {
	var k K
	var w verdictValue
	it := m.Iterate()
	for it.Next(&k, &w) {
		visit(k, &w)
	}
	return it.Err()
}

// Dropped returns how many packets, and bytes of them, a rule has dropped since the program was loaded.
func (d *Defence) Dropped(rule uint32) (packets, bytes uint64, err error) {
	var perCPU []ruleCount
	if err := d.counters.Lookup(rule, &perCPU); err != nil {
		return 0, 0, fmt.Errorf("counter of rule %d: %w", rule, err)
	}
	for _, c := range perCPU {
		packets += c.Packets
		bytes += c.Bytes
	}
	return packets, bytes, nil
}

// AssistSYN has SYNs beyond a rate, of each CPU and second, answered with SYN cookies in XDP, if a socket of the kernel
// listens; 0: none. With net.ipv4.tcp_syncookies at 1, the default, the kernel sends cookies when its queue of the
// listener is full, and with 2 always. Connections that begin so have no window scaling, SACK and timestamps, so the rate is
// one that only a flood exceeds. Sockets of Millrace's own TCP have cookies of their own and are not listeners here.
func (d *Defence) AssistSYN(rate uint32) error {
	var perCPU []synState
	if err := d.syn.Lookup(uint32(0), &perCPU); err != nil {
		return fmt.Errorf("SYN cookies: %w", err)
	}
	for i := range perCPU { // a count of this moment may be lost
		perCPU[i].Rate, perCPU[i].Burst = rate, max(1, rate/10)
	}
	if err := d.syn.Put(uint32(0), perCPU); err != nil {
		return fmt.Errorf("SYN cookies: %w", err)
	}
	return nil
}

// AnsweredSYNs returns how many SYNs were answered with cookies since the program was loaded.
func (d *Defence) AnsweredSYNs() (n uint64, err error) {
	var perCPU []synState
	if err := d.syn.Lookup(uint32(0), &perCPU); err != nil {
		return 0, fmt.Errorf("SYN cookies: %w", err)
	}
	for _, s := range perCPU {
		n += s.Answered
	}
	return n, nil
}

// monotonic returns CLOCK_MONOTONIC, which bpf_ktime_get_ns reads.
func monotonic() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
