package afxdp

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/ring"
)

// Mode is the XDP mode: where the interface runs the steering program.
type Mode uint8

// The modes. ModeAuto tries native and falls back to generic; Info.Negotiated reports the mode and why.
const (
	ModeAuto    Mode = iota
	ModeNative       // in the driver, before the kernel makes an skb
	ModeGeneric      // after it: works with every device
)

// Copy is the copy mode: whether the kernel copies the bytes of a packet or the device uses frames itself.
type Copy uint8

// The copy modes. CopyAuto lets the kernel choose: zero-copy where the driver supports it.
const (
	CopyAuto Copy = iota
	CopyOn        // the kernel copies
	CopyOff       // the device reads and writes frames itself, or Open fails
)

// MultiBuf is the choice of multi-buffer: whether a packet may span several frames (XDP_USE_SG, Linux 6.6).
type MultiBuf uint8

// The choices. MultiBufAuto turns it on where a packet of the interface's MTU does not fit a frame, because
// drivers without it reject the program and those with it are slower.
const (
	MultiBufAuto MultiBuf = iota
	MultiBufOff
	MultiBufOn
)

// Limits and defaults of Config. Headroom is for headers that are pushed: VLAN tags and tunnels.
const (
	DefaultRing     = 4096 // entries of each ring
	DefaultHeadroom = 256  // bytes; the kernel's XDP_PACKET_HEADROOM, which it always leaves
	maxFrameSize    = 4096 // XDP_UMEM_REG takes chunks up to a page
)

// Rings are the sizes of a queue's rings in entries, powers of two, which the kernel requires; 0 is
// DefaultRing. A ring absorbs the packets of the longest time between two polls: 4096 entries are 1 ms
// at 4 Mpps. For the highest rates take 16384 and a pool of at least 32768 frames.
type Rings struct {
	Fill       int // free frames that wait for packets
	Completion int // sent frames that wait for Tx; at least Tx
	Rx         int // received packets that wait for Rx
	Tx         int // packets that wait for the device
}

// BusyPoll makes the kernel poll the device in the driver's system calls instead of by interrupt
// (SO_PREFER_BUSY_POLL). It helps NICs with interrupt deferral set up; on veth it brings nothing.
type BusyPoll struct {
	Micros int // SO_BUSY_POLL: longest poll of one call, microseconds; 0 is off
	Budget int // SO_BUSY_POLL_BUDGET: most packets of one call; 0 is 64
}

// Config describes what Open opens. Interface and Pools are required.
type Config struct {
	Interface string

	// Queues are the numbers of the device queues to open; nil is the first len(Pools). Queues
	// that are left out stay with the kernel, whatever the rules say: open all (RxQueues counts
	// them) or set the device to as many as there are loops.
	Queues []int

	// Pools supply the frames, one pool per queue and all of them cut from one arena. Queues of the
	// same loop may share a pool, and so must the devices that one loop forwards between.
	Pools []*ring.Pool

	Rings    Rings
	RxFrames int // most frames of a queue that wait for packets; 0 is the fill ring's size or a quarter of the pool, whichever is less

	Mode         Mode
	Copy         Copy
	NoNeedWakeup bool // the kernel polls the rings instead of asking for wake-ups
	BusyPoll     BusyPoll
	MultiBuf     MultiBuf

	// Offload makes Tx take large packets (packet.FlagOffload) in copy mode, on an interface without a queueing
	// discipline: the device or the kernel segments them. Elsewhere it has no effect. None are received.
	Offload bool

	// Headroom is the least space in front of a received packet, bytes: room for headers that are
	// pushed. 0 is DefaultHeadroom. The kernel leaves 256 in any case, so that less gives no
	// larger packets.
	Headroom int

	// FillLater leaves it to the first Rx of each queue to take frames from its pool, so that the pools' loops may run
	// during Open. Packets that arrive before it are lost (RxMissed).
	FillLater bool

	// All takes every frame of the interface away from the kernel: for a bump in the wire. Without
	// it the kernel keeps all that no rule names.
	All   bool
	Rules []Rule // the first rules; Device.Steering changes them
}

// withDefaults checks the configuration and fills in its zero values. What the kernel would reject with EINVAL
// is rejected here, with the reason.
func (c Config) withDefaults() (Config, error) {
	if len(c.Pools) == 0 {
		return c, fmt.Errorf("no pool: a queue needs one to receive into")
	}
	if c.Queues == nil {
		for i := range c.Pools {
			c.Queues = append(c.Queues, i)
		}
	}
	if len(c.Queues) != len(c.Pools) {
		return c, fmt.Errorf("%d queues but %d pools: give one pool per queue", len(c.Queues), len(c.Pools))
	}
	for i, id := range c.Queues {
		if slices.Contains(c.Queues[:i], id) {
			return c, fmt.Errorf("queue %d is named twice", id)
		}
	}
	for _, p := range c.Pools {
		if p.Arena() != c.Pools[0].Arena() {
			return c, fmt.Errorf("the pools are cut from different arenas: a device registers one")
		}
	}
	if size := c.arena().FrameSize(); size > maxFrameSize {
		return c, fmt.Errorf("frames of %d bytes: AF_XDP takes at most %d, use a smaller frame and MultiBuf", size, maxFrameSize)
	}
	if c.All && len(c.Rules) > 0 {
		return c, fmt.Errorf("both All and rules: with All no rule is looked at")
	}
	if c.Headroom < DefaultHeadroom {
		c.Headroom = DefaultHeadroom
	}
	return c, c.Rings.setDefaults()
}

// arena returns the arena of all pools.
func (c *Config) arena() *ring.Arena { return c.Pools[0].Arena() }

// setDefaults fills in sizes and checks them. Every packet that is sent needs a completion entry: with fewer
// of them than tx entries the kernel stops sending until the driver has read some.
func (r *Rings) setDefaults() error {
	for _, f := range []struct {
		name string
		n    *int
	}{{"tx", &r.Tx}, {"completion", &r.Completion}, {"rx", &r.Rx}, {"fill", &r.Fill}} {
		if *f.n == 0 {
			*f.n = DefaultRing
		}
		if *f.n < 1 || *f.n&(*f.n-1) != 0 {
			return fmt.Errorf("%s ring of %d entries: want a power of two", f.name, *f.n)
		}
	}
	if r.Completion < r.Tx {
		return fmt.Errorf("completion ring of %d entries for a tx ring of %d: it would stall Tx", r.Completion, r.Tx)
	}
	return nil
}

// rxFrames returns how many frames of pool p a queue keeps in the kernel. A quarter of the pool leaves
// enough for what other queues receive, for packets on their way and for those being sent.
func (c *Config) rxFrames(p *ring.Pool) int {
	if c.RxFrames > 0 {
		return min(c.RxFrames, c.Rings.Fill)
	}
	return min(c.Rings.Fill, max(p.Size()/4, 1))
}
