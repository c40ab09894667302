package virtio

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/ring"
)

// Config describes what OpenBackend and OpenFrontend open. Path and Pools are required.
type Config struct {
	Path   string // of the Unix socket
	Server bool   // listen there; otherwise connect, and again when the connection ends

	// Pools supply the frames, one for each queue pair, cut from one arena. That of a Frontend is shared (ring.ArenaConfig.Shared).
	Pools []*ring.Pool

	MTU      int     // of network-layer packets; 0 is 1500
	MAC      [6]byte // link address of this end; zero is one that follows from Path
	Headroom int     // bytes in front of a received packet; 0 is DefaultHeadroom
	Ring     int     // of a Frontend: descriptors of each ring, a power of two; 0 is DefaultRing
	Packed   bool    // of a Frontend: packed rings, where the back end has them

	frontend bool
}

// Defaults of Config.
const (
	DefaultMTU      = 1500
	DefaultHeadroom = 256 // bytes, as AF_XDP leaves
	DefaultRing     = 256

	maxMTU    = 65535 - 40
	maxQueues = 64
	minRing   = 16
	maxRing   = 32768
)

// Name returns the name of the device: "vhost:" or "virtio:" and the path.
func (c *Config) Name() string {
	if c.frontend {
		return "virtio:" + c.Path
	}
	return "vhost:" + c.Path
}

// check fills in the defaults and rejects what cannot be.
func (c *Config) check() error {
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.Headroom == 0 {
		c.Headroom = DefaultHeadroom
	}
	if c.Ring == 0 {
		c.Ring = DefaultRing
	}
	if c.MAC == ([6]byte{}) {
		c.MAC = macOf(c.Name())
	}
	switch {
	case len(c.Pools) == 0 || len(c.Pools) > maxQueues:
		return fmt.Errorf("%d pools: want one for each queue, up to %d", len(c.Pools), maxQueues)
	case len(c.Path) == 0 || len(c.Path) > 107: // sun_path
		return fmt.Errorf("a path of %d bytes: want 1 to 107", len(c.Path))
	case c.MTU < 68 || c.MTU > maxMTU:
		return fmt.Errorf("MTU %d: want 68 to %d", c.MTU, maxMTU)
	case c.Ring < minRing || c.Ring > maxRing || c.Ring&(c.Ring-1) != 0:
		return fmt.Errorf("a ring of %d: want a power of two from %d to %d", c.Ring, minRing, maxRing)
	}
	for _, p := range c.Pools {
		if p == nil || p.Arena() != c.Pools[0].Arena() {
			return errors.New("the pools are not of one arena")
		}
	}
	if size := c.Pools[0].Arena().FrameSize(); c.Headroom < 32 || c.Headroom > size/2 {
		return fmt.Errorf("headroom of %d bytes: want 32 to half of a frame of %d", c.Headroom, size)
	}
	return nil
}

// macOf returns a locally administered address that follows from a name, so that neighbours know the device again after a restart.
func macOf(name string) (mac [6]byte) {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	for i := range mac {
		mac[i] = byte(h >> (8 * i))
	}
	mac[0] = mac[0]&^1 | 2
	return mac
}

// limit returns the bytes of the longest packet that begins with p: VLAN tags, up to two, do not count against the MTU.
func limit(p []byte, mtu int) int {
	n := 14 + mtu
	for i := 12; i <= 16 && len(p) >= i+4; i += 4 {
		if t := uint16(p[i])<<8 | uint16(p[i+1]); t != 0x8100 && t != 0x88a8 {
			break
		}
		n += 4
	}
	return n
}
