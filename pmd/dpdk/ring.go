package dpdk

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/millrace/millrace/pmd"
)

// wires numbers the wires of RingWire: DPDK's rings have names.
var wires atomic.Uint32

// RingWire opens two devices that DPDK's rings connect: what one sends, the other receives. Names in the configurations are
// ignored. A frame crosses the wire as its mbuf; the receiver copies the packet to a frame of its own, because the sender's
// belongs to the sender's pool. The rings stay until the process ends.
func RingWire(slots int, a, b Config) (near, far *Device, err error) {
	s, err := load()
	if err != nil {
		return nil, nil, unavailable("net_ring", err)
	}
	if err := s.startEAL(false); err != nil {
		return nil, nil, &pmd.OpError{Op: "open", Device: "net_ring", Err: err}
	}
	name := fmt.Sprintf("net_ring_mr%d", 2*wires.Add(1))
	var ports [2]uint32
	c := cString(name)
	if err := errno(s.call("mrd_ring_wire", uintptr(unsafe.Pointer(c)), uintptr(slots), uintptr(unsafe.Pointer(&ports)))); err != nil {
		return nil, nil, explain("ring", name, 0, err, s.log())
	}
	ends := [2]*Device{}
	for i, cfg := range []Config{a, b} {
		cfg.Name, cfg.port = fmt.Sprintf("net_ring%d", i), &ports[i]
		if ends[i], err = Open(cfg); err != nil {
			if i == 1 {
				_ = ends[0].Close()
			}
			return nil, nil, err
		}
	}
	return ends[0], ends[1], nil
}
