package program

import (
	"math/rand/v2"
	"syscall"

	"github.com/millrace/millrace/rdma/cm"
)

// spaces are the port spaces of librdmacm (RDMA_PS_TCP, RDMA_PS_UDP), by the IP protocol whose ports they resemble.
var spaces = map[uint32]uint8{0x106: cm.SpaceTCP, 0x111: cm.SpaceUDP}

// portKey names a port of a space.
type portKey struct {
	space uint8
	port  uint16
}

// ports holds the ports that programs of the node have bound. The holder of the loop owns it.
type ports map[portKey]*portUse

// portUse counts the identifiers that share a port: more than one only where all of them permit it.
type portUse struct {
	owners int
	reuse  bool
}

// Ephemeral ports, as Linux has them.
const (
	firstEphemeral = 32768
	lastEphemeral  = 60999
)

// bind takes a port, 0 for any that is free.
func (t ports) bind(space uint8, port uint16, reuse bool) (uint16, error) {
	if port == 0 {
		const n = lastEphemeral - firstEphemeral + 1
		start := rand.N(n)
		for i := range n {
			k := portKey{space, uint16(firstEphemeral + (start+i)%n)}
			if t[k] == nil {
				t[k] = &portUse{owners: 1, reuse: reuse}
				return k.port, nil
			}
		}
		return 0, syscall.EADDRNOTAVAIL
	}
	k := portKey{space, port}
	switch u := t[k]; {
	case u == nil:
		t[k] = &portUse{owners: 1, reuse: reuse}
	case !u.reuse || !reuse:
		return 0, syscall.EADDRINUSE
	default:
		u.owners++
	}
	return port, nil
}

// release gives a port back.
func (t ports) release(space uint8, port uint16) {
	k := portKey{space, port}
	if u := t[k]; u != nil {
		if u.owners--; u.owners == 0 {
			delete(t, k)
		}
	}
}
