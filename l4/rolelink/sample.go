package rolelink

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/l4/role"
)

// askedOwn is the number of addresses of a family and a network that are asked for beside those that the peer is known to have.
// Before a message of the peer nothing is known of its file; each address that only this gateway has is one wasted.
const askedOwn = 4

// sampledOfNetwork is the number of addresses of a family and a network in a message, as long as there is room.
const sampledOfNetwork = 4

// rank orders addresses the same at both gateways, whatever the order in their files: the addresses of the lowest ranks are likely
// to be the same where most addresses are (a bottom-k sketch).
func rank(a netip.Addr) uint64 {
	b := a.As16()
	x := binary.BigEndian.Uint64(b[:8])*0x9e3779b97f4a7c15 ^ binary.BigEndian.Uint64(b[8:])
	for range 2 { // the finalizer of SplitMix64: each bit changes half of the others
		x ^= x >> 30
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		x *= 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}

// lowest returns the n addresses of a family with the lowest ranks.
func lowest(addrs []netip.Addr, four bool, n int) (list []netip.Addr) {
	for _, a := range addrs {
		if a.Is4() != four {
			continue
		}
		if at, _ := slices.BinarySearchFunc(list, a, byRank); at < n {
			list = slices.Insert(list, at, a)
			list = list[:min(len(list), n)]
		}
	}
	return list
}

func byRank(a, b netip.Addr) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b))
}

// describe returns what the peer has to know of the addresses of this gateway. Networks take turns in the sample, so that
// each has one while there is room.
func describe(all []netip.Addr, links []Link) (a role.Addresses) {
	a.Count = uint32(len(all))
	for _, addr := range all {
		a.Digest ^= rank(addr)
	}
	var lists [][]netip.Addr // of each network and family
	for i := range links {
		for _, four := range []bool{true, false} {
			lists = append(lists, lowest(links[i].Addrs, four, sampledOfNetwork))
		}
	}
	for n := range sampledOfNetwork {
		for _, list := range lists {
			if n < len(list) && len(a.Sample) < role.MaxSample && !slices.Contains(a.Sample, list[n]) {
				a.Sample = append(a.Sample, list[n])
			}
		}
	}
	return a
}

// questions returns the addresses of a link that are asked for: those that the peer is known to have as well, and some more, since
// its file may have changed after its last message.
func questions(addrs, known []netip.Addr) (list []netip.Addr) {
	for _, a := range known {
		if slices.Contains(addrs, a) {
			list = append(list, a)
		}
	}
	for _, a := range append(lowest(addrs, true, askedOwn), lowest(addrs, false, askedOwn)...) {
		if !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}
