package dpdk

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// flowSpec is struct mrd_flow of shim.h.
type flowSpec struct {
	rssTypes                     uint64
	port, queues, queue, keySize uint32
	action                       flowAction
	l4Port, l4Mask               uint16
	family, source               uint8
	proto                        uint8
	_                            [5]uint8
	addr                         [16]byte
	key                          [64]byte
}

// flowAction selects what a rule of the device does with packets, as bits (MRD_FLOW_* of shim.h).
type flowAction uint32

const (
	flowMark flowAction = 1 << iota
	flowQueue
	flowRSS
	flowPass
)

// flowRule names packets as devices can: by one address, and perhaps a protocol and a block of ports on the side of the address.
type flowRule struct {
	addr       netip.Addr
	source     bool   // the address and the port are those of the sender
	proto      uint8  // 0, TCP or UDP
	port, mask uint16 // ports whose bits under the mask are those of port; mask 0 is every port
}

// flowKind groups rules that a device supports together, or not at all.
type flowKind struct {
	is4, source bool
	port, block bool // one port; a block of several, which fewer devices know
	proto       uint8
}

func (r flowRule) kind() flowKind {
	return flowKind{r.addr.Is4(), r.source, r.mask == 1<<16-1, r.mask != 0 && r.mask != 1<<16-1, r.proto}
}

// mostBlocks limits the rules for one range of ports: a device has room for few.
const mostBlocks = 8

// flowRules returns the rules of a device that together name the packets of r, or a part of them. None: only software can name
// them. Fragments after the first have no ports, so that a device passes those of a rule with a protocol on unmarked: they are
// then steered in software.
func flowRules(r pmd.Rule) []flowRule {
	f := flowRule{addr: r.Addr.Unmap(), source: r.Kind == pmd.From, proto: r.Proto}
	named := r.Proto == 0 || r.Proto == wire.ProtoTCP || r.Proto == wire.ProtoUDP
	if r.Kind > pmd.From || r.LaterFragments || !named || r.Validate() != nil {
		return nil
	}
	if r.PortLo == 0 && r.PortHi == 0 {
		return []flowRule{f}
	}
	return portBlocks(f, uint32(r.PortLo), uint32(max(r.PortLo, r.PortHi)))
}

// portBlocks covers a range of ports by blocks of a power of two, as masks name them; devices do not compare with ranges. nil: it
// takes too many.
func portBlocks(f flowRule, lo, hi uint32) (list []flowRule) {
	for lo <= hi {
		size := uint32(1) << min(bits.TrailingZeros32(lo|1<<16), bits.Len32(hi-lo+1)-1)
		if len(list) == mostBlocks {
			return nil
		}
		f.port, f.mask = uint16(lo), uint16(-size)
		if f.mask == 0 {
			f.port = 0 // all of them
		}
		list = append(list, f)
		lo += size
	}
	return list
}

// rssTypes returns the RSS types of a rule: a device may refuse those of packets that the rule does not name.
func (r flowRule) rssTypes() uint64 {
	types := map[uint8]uint64{0: 1<<2 | 1<<3 | 1<<4 | 1<<5, wire.ProtoTCP: 1 << 4, wire.ProtoUDP: 1 << 5}[r.proto]
	if !r.addr.Is4() {
		types <<= 6 // RTE_ETH_RSS_IPV6 is 1<<8
	}
	return types
}

// flowDevice is what a flowTable needs of a device.
type flowDevice interface {
	create(r flowRule, a flowAction) (handle uintptr, err error)
	destroy(handle uintptr) error
	flush() error
}

// shimFlows is the device behind the shim.
type shimFlows struct {
	shim *shim
	spec flowSpec // of every rule: device, queues and their key
}

// mostErrorText is the length of a driver's explanation.
const mostErrorText = 256

func (f *shimFlows) create(r flowRule, a flowAction) (uintptr, error) {
	s := f.spec
	s.action, s.l4Port, s.l4Mask, s.proto, s.family = a, r.port, r.mask, r.proto, 6
	s.rssTypes &= r.rssTypes()
	if r.source {
		s.source = 1
	}
	if r.addr.Is4() {
		s.family = 4
	}
	s.queue = uint32(r.port) % s.queues
	copy(s.addr[:], r.addr.AsSlice())
	var text [mostErrorText]byte
	n := f.shim.call("mrd_flow_create", uintptr(unsafe.Pointer(&s)), uintptr(unsafe.Pointer(&text)), mostErrorText)
	return uintptr(n), flowError(n, text[:])
}

func (f *shimFlows) destroy(handle uintptr) error {
	var text [mostErrorText]byte
	n := f.shim.call("mrd_flow_destroy", uintptr(f.spec.port), handle, uintptr(unsafe.Pointer(&text)), mostErrorText)
	return flowError(n, text[:])
}

func (f *shimFlows) flush() error {
	var text [mostErrorText]byte
	n := f.shim.call("mrd_flow_flush", uintptr(f.spec.port), uintptr(unsafe.Pointer(&text)), mostErrorText)
	return flowError(n, text[:])
}

// flowError returns the error of a call about a rule, with the driver's explanation.
func flowError(n int64, explanation []byte) error {
	err := errno(n)
	if t := strings.TrimSpace(text(explanation)); err != nil && t != "" && !strings.EqualFold(t, err.Error()) {
		return fmt.Errorf("%w: %s", err, t)
	}
	return err
}

// flowActions lists what is tried for a rule, the best first. A mark saves the look at the packet in software. Where the device
// distributes flows by RSS, a rule must not send all flows of a service to one queue.
func flowActions(queues int, rss bool) []flowAction {
	switch {
	case queues == 1:
		return []flowAction{flowMark | flowQueue} // without the mark a rule changes nothing
	case rss:
		return []flowAction{flowMark | flowRSS, flowMark | flowPass, flowRSS}
	}
	return []flowAction{flowMark | flowQueue, flowQueue}
}

// unsupported reports whether a device refuses a rule for what it is, and not for want of room.
func unsupported(err error) bool {
	for _, e := range []error{unix.ENOSYS, unix.ENOTSUP, unix.EINVAL, unix.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
