package virtio

import (
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd/virtio/vhostuser"
)

// ringState is the state of a front end's ring.
type ringState uint8

// The states of a ring. It is started by its kick file and stopped by GET_VRING_BASE; apart from that the front end enables and
// disables it.
const (
	ringStopped        ringState = iota
	ringStoppedEnabled           // runs as soon as it is started
	ringDisabled                 // started, and its packets wait
	ringRunning
	ringStates
)

// ringEvent changes the state of a ring.
type ringEvent uint8

const (
	ringKick ringEvent = iota // SET_VRING_KICK
	ringEnable
	ringDisable
	ringStop // GET_VRING_BASE
	ringEvents
)

// ringNext is the table of transitions (vhost-user, "Ring states").
var ringNext = [ringStates][ringEvents]ringState{
	ringStopped:        {ringDisabled, ringStoppedEnabled, ringStopped, ringStopped},
	ringStoppedEnabled: {ringRunning, ringStoppedEnabled, ringStopped, ringStoppedEnabled},
	ringDisabled:       {ringDisabled, ringRunning, ringDisabled, ringStopped},
	ringRunning:        {ringRunning, ringRunning, ringDisabled, ringStoppedEnabled},
}

func (s ringState) started() bool { return s == ringDisabled || s == ringRunning }

// backRing is a ring as the front end has configured it.
type backRing struct {
	state      ringState
	size       int
	addr       vhostuser.VringAddr
	placed     bool   // addr is set
	base       uint16 // where to go on; of packed rings with the wrap counter
	use        uint16
	fresh      bool // base is the front end's, and was not used yet
	kick, call int  // files; -1: none
}

// closeFiles closes the notification files.
func (r *backRing) closeFiles() {
	for _, fd := range []*int{&r.kick, &r.call} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// setBase takes the value of SET_VRING_BASE. Of a packed ring it has both positions, each with its wrap counter in bit 15.
func (r *backRing) setBase(v uint32, packed bool) {
	// Front ends that find a new back end may not know where the last one ended: DPDK's says 0. Of split rings the used ring has it
	// (vring.Config.Resume); libvhost-user and DPDK's library begin there too.
	r.base, r.use, r.fresh = uint16(v), uint16(v), true
	if packed {
		r.use = uint16(v >> 16)
		if v>>16 == 0 { // front ends of before the two halves were defined have them equal
			r.use = r.base
		}
	}
}

// baseValue is the value of GET_VRING_BASE.
func (r *backRing) baseValue(packed bool) uint32 {
	if packed {
		return uint32(r.base) | uint32(r.use)<<16
	}
	return uint32(r.base)
}
