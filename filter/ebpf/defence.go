package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

//go:generate go tool -modfile=../../internal/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" defence bpf/defence.c

// DefenceObject is the name under which OpenDefence loads the program. `filter attach defence --xdp IF` attaches it.
const DefenceObject = "defence"

// MaxRules is how many rules a Defence counts: their numbers are below it.
const MaxRules = 4096

// Verdict says what becomes of packets from a prefix.
type Verdict struct {
	Prefix netip.Prefix
	Rule   uint32        // which counts what is dropped, below MaxRules
	Rate   uint32        // packets a second that each source of the prefix may send; 0: none
	Burst  uint32        // packets that a source may send at once; 0: a tenth of a second's, at least 1
	For    time.Duration // 0: until it is removed
}

// Defence is the XDP program that drops and limits sources, loaded in a store. Its maps are pinned: verdicts stay when the
// process ends. Its methods may be called by any goroutine.
type Defence struct {
	drop4, drop6, counters, syn *ebpf.Map
}

// verdictValue is struct verdict of bpf/defence.c.
type verdictValue struct {
	Until             uint64
	Rule, Rate, Burst uint32
	Bits              uint32
}

// The keys of the maps, as in bpf/defence.c.
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
	for name, m := range map[string]**ebpf.Map{"drop4": &d.drop4, "drop6": &d.drop6, "counters": &d.counters, "syn": &d.syn} {
		if *m, err = s.findMap(DefenceObject + "/" + name); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Close gives the maps back. The program and its verdicts stay.
func (d *Defence) Close() error {
	return errors.Join(d.drop4.Close(), d.drop6.Close(), d.counters.Close(), d.syn.Close())
}

// Put adds verdicts, or replaces those of the same prefixes. Each is in force when Put returns, for packets that come after.
// On an error those before it are in force.
func (d *Defence) Put(list ...Verdict) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	for _, v := range list {
		value, err := v.value(now)
		if err != nil {
			return err
		}
		m, key := d.entry(v.Prefix)
		if err := m.Put(key, value); err != nil {
			return fmt.Errorf("verdict on %v: %w", v.Prefix, err)
		}
	}
	return nil
}

// value checks a verdict and returns its value in the map.
func (v Verdict) value(now time.Duration) (w verdictValue, err error) {
	if !v.Prefix.IsValid() || v.Rule >= MaxRules || v.For < 0 {
		return w, fmt.Errorf("%w: verdict on %v by rule %d for %v", ErrValue, v.Prefix, v.Rule, v.For)
	}
	w = verdictValue{Rule: v.Rule, Rate: v.Rate, Burst: v.Burst, Bits: uint32(unmapped(v.Prefix).Bits())}
	if v.Rate != 0 && v.Burst == 0 {
		w.Burst = max(1, v.Rate/10)
	}
	if v.For != 0 {
		w.Until = uint64(now + v.For)
	}
	return w, nil
}

// unmapped returns the IPv4 prefix of an IPv4-mapped one (RFC 4291 2.5.5.2).
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked()
	}
	return p.Masked()
}

// entry returns the map of a prefix and its key.
func (d *Defence) entry(p netip.Prefix) (*ebpf.Map, any) {
	p = unmapped(p)
	if p.Addr().Is4() {
		return d.drop4, prefixKey4{uint32(p.Bits()), p.Addr().As4()}
	}
	return d.drop6, prefixKey6{uint32(p.Bits()), p.Addr().As16()}
}

// Remove removes the verdict on a prefix. One that is not there is removed already.
func (d *Defence) Remove(p netip.Prefix) error {
	if !p.IsValid() {
		return fmt.Errorf("%w: prefix %v", ErrValue, p)
	}
	m, key := d.entry(p)
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("verdict on %v: %w", p, err)
	}
	return nil
}

// Verdicts calls each with the verdicts that are in force. For is the time that is left; 0: it does not end.
func (d *Defence) Verdicts(each func(Verdict)) error {
	return d.walk(func(v Verdict, expired bool) error {
		if !expired {
			each(v)
		}
		return nil
	})
}

// Expire removes the verdicts that have expired and returns how many. They have no effect any more, but take room.
func (d *Defence) Expire() (n int, err error) {
	var gone []netip.Prefix
	err = d.walk(func(v Verdict, expired bool) error {
		if expired {
			gone = append(gone, v.Prefix)
		}
		return nil
	})
	for _, p := range gone {
		now, e := monotonic()
		var w verdictValue
		m, key := d.entry(p)
		if e == nil {
			e = m.Lookup(key, &w)
		}
		if e != nil || w.Until == 0 || time.Duration(w.Until) > now {
			continue // removed or put again meanwhile
		}
		err = errors.Join(err, d.Remove(p))
		n++
	}
	return n, err
}

// walk calls each for all entries of both maps.
func (d *Defence) walk(each func(v Verdict, expired bool) error) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	visit := func(addr netip.Addr, bits uint32, w verdictValue) error {
		v := Verdict{Prefix: netip.PrefixFrom(addr, int(bits)), Rule: w.Rule, Rate: w.Rate, Burst: w.Burst}
		if w.Until != 0 {
			v.For = time.Duration(w.Until) - now
		}
		return each(v, w.Until != 0 && v.For <= 0)
	}
	var w verdictValue
	var k4 prefixKey4
	it := d.drop4.Iterate()
	for it.Next(&k4, &w) {
		if err := visit(netip.AddrFrom4(k4.Addr), k4.Bits, w); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	var k6 prefixKey6
	it = d.drop6.Iterate()
	for it.Next(&k6, &w) {
		if err := visit(netip.AddrFrom16(k6.Addr), k6.Bits, w); err != nil {
			return err
		}
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
// listens; 0: none. With net.ipv4.tcp_syncookies at 1, the default, the kernel gives cookies out when its queue of the
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
