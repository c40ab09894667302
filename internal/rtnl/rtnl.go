// Package rtnl reads the kernel's tables of interfaces, addresses, routes and neighbours so that the
// answer is whole. A dump by rtnetlink that a change of the table interrupts is flagged by the kernel
// (NLM_F_DUMP_INTR, netlink(7)) and may lack entries: an interface that comes or goes is enough. Taken
// for the truth, such an answer is a machine without interfaces.
package rtnl

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A dump is tried dumpTries times: 0.2 s in all where each is interrupted at once. The pauses grow,
// because what changes a table once often changes it again right away.
const (
	dumpTries    = 10
	longestPause = 32 * time.Millisecond
)

// Dump returns the answer of dump, which it calls again while the kernel interrupts it. A caller that
// gets an error keeps the view that it had: the answer is then zero, not a part.
func Dump[T any](dump func() (T, error)) (answer T, err error) {
	pause := time.Millisecond
	for range dumpTries {
		if answer, err = dump(); err == nil {
			return answer, nil
		}
		if !interrupted(err) {
			break
		}
		time.Sleep(pause)
		pause = min(2*pause, longestPause)
	}
	var none T
	return none, err
}

// interrupted reports whether the same request may succeed if it is made again: the dump or the system
// call was interrupted, or the kernel had no memory for the answer.
func interrupted(err error) bool {
	return errors.Is(err, netlink.ErrDumpInterrupted) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) ||
		errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOBUFS)
}

// Addrs returns the addresses of all interfaces in the network namespace of the calling thread, and the directed
// broadcasts of their networks.
func Addrs() (own, broadcasts map[netip.Addr]bool, err error) {
	list, err := Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, nil, err
	}
	own, broadcasts = make(map[netip.Addr]bool, len(list)), map[netip.Addr]bool{}
	for _, a := range list {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		own[ip] = true
		bits, _ := a.Mask.Size()
		if b, ok := Broadcast(netip.PrefixFrom(ip, bits)); ok {
			broadcasts[b] = true
		}
		if b, ok := netip.AddrFromSlice(a.Broadcast); ok { // set by hand, it need not be the last address of the network
			broadcasts[b] = true
		}
	}
	return own, broadcasts, nil
}

// Broadcast returns the directed broadcast of an IPv4 network (RFC 919 7). Networks of two addresses and of one have none
// (RFC 3021 2.1).
func Broadcast(p netip.Prefix) (netip.Addr, bool) {
	if !p.Addr().Is4() || p.Bits() < 0 || p.Bits() > 30 {
		return netip.Addr{}, false
	}
	a := p.Addr().As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|^uint32(0)>>p.Bits())
	return netip.AddrFrom4(a), true
}
