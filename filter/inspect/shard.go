package inspect

import (
	"encoding/binary"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// Shard returns a number by which frames are shared out over engines. Those between two hosts have the same one, in both
// directions, so that flows, fragments and transfers that another flow announces meet one engine. Of a tunnel the outer
// addresses count. What is not IP has 0.
func Shard(frame []byte) uint64 {
	if len(frame) < wire.EthernetLen {
		return 0
	}
	switch etherType, b := network(binary.BigEndian.Uint16(frame[12:]), frame[wire.EthernetLen:], true); {
	case etherType == wire.EtherTypeIPv4 && len(b) >= wire.IPv4Len:
		return pairHash(uint64(binary.BigEndian.Uint32(b[12:])), uint64(binary.BigEndian.Uint32(b[16:])))
	case etherType == wire.EtherTypeIPv6 && len(b) >= wire.IPv6Len:
		return pairHash(fold16(b[8:24]), fold16(b[24:40]))
	}
	return 0
}

// fold16 mixes an IPv6 address into a word.
func fold16(a []byte) uint64 {
	return mixed(binary.BigEndian.Uint64(a)) ^ binary.BigEndian.Uint64(a[8:])
}

// pairHash is the same for both orders of a and b.
func pairHash(a, b uint64) uint64 { return mixed(mixed(a) + mixed(b)) }

// mixed is the finaliser of splitmix64 (S. Vigna): each bit of x changes half of those of the result.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// NeedOneEngine returns the rules that need all packets in one engine, in their order: what they add to a dataset holds for all
// hosts, and a detection filter decides, at each match, over bits, counters and passes of the flow.
func (r *Rules) NeedOneEngine() (list []*signature.Rule) {
	for _, q := range r.rules {
		if q.changesSets() || q.Detect != nil && (q.Action == signature.Pass || q.changesFlow()) {
			list = append(list, q.Rule)
		}
	}
	return list
}

// changesSets reports whether a rule adds to datasets, or removes from them.
func (q *rule) changesSets() bool {
	for i := range q.parts {
		for _, t := range q.parts[i].Tests {
			if t.Kind == signature.TestSet && t.Set.Op != signature.InSet && t.Set.Op != signature.NotInSet {
				return true
			}
		}
	}
	return false
}

// changesFlow reports whether a rule sets bits or counters.
func (q *rule) changesFlow() bool {
	for i := range q.bits {
		if q.bits[i].Op > signature.IsNotSet {
			return true
		}
	}
	for i := range q.counters {
		if !q.counters[i].Op.Condition() {
			return true
		}
	}
	return false
}
