// Package afpacket drives an interface through packet sockets: for machines without AF_XDP.
//
// Packets come from a ring of blocks that the kernel fills (TPACKET_V3) and are copied, once, into
// frames of the pool. They leave by sendmmsg(2), straight from their frames. The kernel's network stack
// is not bypassed, so expect half of AF_XDP's rate, and up to a millisecond of delay for a single
// packet: the kernel passes a block that is not full when its timer expires. With Config.Offload the ring
// has slots instead (TPACKET_V2), large packets are received by recvmsg(2), and none waits.
//
// The driver does the work that the kernel has left to a device, so that a packet may leave through
// any: it puts VLAN tags back, fills in checksums (packets of local origin have none on a veth) and cuts
// the large packets of GSO and GRO into segments of their sender's segment size.
//
// With Config.Offload it can leave that to the device that sends the packet. A large packet then
// passes whole, in several descriptors, with packet.FlagOffload; see Device.SetOffload.
//
// # The kernel sees the packets too
//
// A packet socket gets copies, so the kernel handles the same packets: it would answer SYNs to an
// address of its own with RST, and forward what it can route. Config.Exclusive hides the packets that
// are received from the kernel, by a filter at the interface's ingress hook. The filter lives in the
// kernel: Close removes it. After SIGKILL it stays and those packets are lost, until the next Open of
// the interface replaces it. By hand:
//
//	tc filter del dev DEV ingress prio 49149
//
// Linux 6.3 or later is needed for UDP segmentation offload to arrive in one piece; CAP_NET_RAW
// for everything, CAP_NET_ADMIN for Exclusive.
package afpacket

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// Defaults of Config.
const (
	DefaultRing     = 4 << 20 // bytes; four times as many with Offload, where packets lie less densely
	DefaultHeadroom = 256     // bytes, as AF_XDP leaves
)

// Config describes what Open opens. Interface and Pools are required, and All or Rules if anything
// is to be received.
type Config struct {
	Interface string

	// Pools supply the frames, one for each queue. Queues share the traffic of the interface by the
	// hash of addresses and ports: the two directions of a flow come to the same queue. Pools may
	// be of different arenas.
	Pools []*ring.Pool

	// Ring is the number of bytes that the kernel may fill for each queue, rounded up to whole blocks; 0 is DefaultRing. With Offload,
	// large packets take as many again, which the kernel doubles for what it adds to each.
	Ring int

	Headroom int // bytes in front of a received packet; 0 is DefaultHeadroom

	All   bool   // receive every packet: for a bump in the wire
	Rules []Rule // receive what these name; Device.SetRules changes them

	Exclusive   bool // hide what is received from the kernel; needs CAP_NET_ADMIN
	Promiscuous bool // receive packets to other link addresses too
	QdiscBypass bool // send past the interface's queueing discipline: no shaping, and no tcpdump
	Offload     bool // be able to send packets with packet.FlagOffload, and to receive them (SetOffload)
}

// Device is an open interface.
type Device struct {
	Queues []*Queue // in the order of Config.Pools; each belongs to one loop

	cfg     Config
	iface   iface
	mu      sync.Mutex     // guards the filters: SetRules runs in any goroutine, Close in another
	ingress *ingressFilter // nil unless Exclusive
	match   *matcher       // installed
	before  *pmd.Prefilter // nil: none

	large atomic.Bool // large packets pass whole; written by SetOffload, read by the loops once a packet
}

// Open opens an interface in the network namespace of the calling thread.
func Open(cfg Config) (*Device, error) {
	if err := cfg.check(); err != nil {
		return nil, &pmd.OpError{Op: "open", Device: cfg.Interface, Err: err}
	}
	if cfg.Ring <= 0 {
		cfg.Ring = DefaultRing
		if cfg.Offload {
			cfg.Ring *= 4
		}
	}
	if cfg.Headroom <= 0 {
		cfg.Headroom = DefaultHeadroom
	}
	d := &Device{cfg: cfg}
	if err := d.open(); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// check rejects a configuration with which no packet could be received.
func (c *Config) check() error {
	if len(c.Pools) == 0 {
		return errors.New("no pool: each queue needs one to receive into")
	}
	if c.All && len(c.Rules) > 0 {
		return errors.New("both All and rules: with All no rule is looked at")
	}
	for _, p := range c.Pools {
		if size := p.Arena().FrameSize(); c.Headroom > size/2 {
			return fmt.Errorf("headroom of %d bytes is more than half of a frame of %d", c.Headroom, size)
		}
		if c.Offload && c.Headroom > 0 && c.Headroom < packet.OffloadLen {
			return fmt.Errorf("headroom of %d bytes: offload keeps %d there", c.Headroom, packet.OffloadLen)
		}
	}
	return nil
}

// open gives every queue a filter that rejects all packets before it binds the queue: a packet would
// be received twice while the queues are not yet one fanout group.
func (d *Device) open() (err error) {
	if d.iface, err = lookUp(d.cfg.Interface); err != nil {
		return d.explain("open", 0, err)
	}
	match, err := d.compile(d.cfg.Rules)
	if err != nil {
		return d.explain("open", 0, err)
	}
	group := 0
	for i, pool := range d.cfg.Pools {
		q, op, err := openQueue(d, i, pool)
		if err != nil {
			return d.explain(op, i, err)
		}
		d.Queues = append(d.Queues, q)
		if len(d.cfg.Pools) == 1 {
			break
		}
		if group, err = joinFanout(q.rx, i == 0, group); err != nil {
			return d.explain("fanout", i, err)
		}
	}
	if d.cfg.Exclusive {
		if d.ingress, err = newIngressFilter(); err != nil {
			return d.explain("exclusive", 0, err)
		}
	}
	return d.install(match)
}

// compile returns the filter of what is to be received. Without rules and without All it takes nothing: receiving all by
// default would, with Exclusive, cut off the ssh session that started the program.
func (d *Device) compile(rules []Rule) (*matcher, error) {
	if d.cfg.All {
		return everything, nil
	}
	return compile(rules)
}

// install gives the sockets and, with Exclusive, the ingress hook new filters. The sockets are first: a
// packet is hidden from the kernel only once a socket takes it, so none is lost in between.
func (d *Device) install(m *matcher) error {
	d.match = m
	if err := d.installSockets(); err != nil {
		return err
	}
	if d.ingress == nil {
		return nil
	}
	if err := d.ingress.install(d.iface.index, m.ingress()); err != nil {
		return d.explain("exclusive", 0, err)
	}
	return nil
}

// installSockets gives the sockets their filter, behind the prefilter where there is one.
func (d *Device) installSockets() error {
	set := func(fd int) error { return setFilter(fd, d.match.socket()) }
	if d.before != nil {
		prog, err := d.before.Socket(d.match.socket())
		if err != nil {
			return d.explain("filter", 0, err)
		}
		set = func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, prog) }
	}
	for _, q := range d.Queues {
		if err := set(q.rx); err != nil {
			return d.explain("filter", q.id, err)
		}
	}
	return nil
}

// SetPrefilter has p see all packets before the rules do; nil: none any more. Where that fails nothing changes. Any
// goroutine may call it.
func (d *Device) SetPrefilter(p *pmd.Prefilter) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.before
	d.before = p
	err := d.installSockets()
	if err != nil {
		d.before = was
		err = errors.Join(err, d.installSockets())
	}
	return err
}

// SetRules replaces the rules while packets flow. Any goroutine may call it.
func (d *Device) SetRules(rules ...Rule) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cfg.All {
		return &pmd.OpError{Op: "filter", Device: d.cfg.Interface, Err: fmt.Errorf("%w: the device was opened for all packets", ErrRule)}
	}
	m, err := compile(rules)
	if err != nil {
		return d.explain("filter", 0, err)
	}
	return d.install(m)
}

// SetOffload has the queues pass large packets whole (packet.FlagOffload) from now on, or cut them, as
// they do at first. Every driver that such a packet can leave by must have pmd.CapOffload. Any
// goroutine may call it.
func (d *Device) SetOffload(on bool) error {
	if on && !d.cfg.Offload {
		return &pmd.OpError{Op: "offload", Device: d.cfg.Interface, Err: fmt.Errorf("%w: the device was opened without Offload", pmd.ErrNotSupported)}
	}
	d.large.Store(on)
	return nil
}

// Close closes every queue and removes the ingress filter, which comes first: from then on the kernel handles the packets
// again, and none is hidden that no socket receives. The loops must have stopped.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	if d.ingress != nil {
		errs = append(errs, d.ingress.remove(d.iface.index))
		d.ingress = nil
	}
	for _, q := range d.Queues {
		errs = append(errs, q.Close())
	}
	return errors.Join(errs...)
}
