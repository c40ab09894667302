package afxdp

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/vnet"
)

// Device is an interface with some of its queues open. Each queue belongs to one loop; Steering and Info may be used by
// any goroutine.
type Device struct {
	Queues []*Queue // in the order of Config.Queues

	cfg   Config
	iface iface
	prog  *program       // attached; nil once closed
	nic   *addressFilter // its memberships end with the process
	steer *Steering
}

// Open opens the queues of an interface and starts to steer to them. An error is an OpError, with a remedy where one is
// known, and leaves everything as it was before.
//
// Open and Close take frames from the pools and give them back: the pools' loops must not run
// meanwhile, but for an Open with FillLater, and for a Close of which each loop has closed its queue.
//
// It needs CAP_NET_RAW for the sockets and CAP_NET_ADMIN with CAP_BPF and CAP_PERFMON for
// the program.
func Open(cfg Config) (*Device, error) {
	d := &Device{cfg: cfg}
	if err := d.open(); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// open attaches the program before it opens the sockets: the program needs the most privileges and fails
// first where another program is attached, before memory is pinned for the UMEM.
func (d *Device) open() (err error) {
	if d.cfg, err = d.cfg.withDefaults(); err != nil {
		return d.fail("configure", 0, err, "")
	}
	if d.iface, err = lookUp(d.cfg.Interface); err != nil {
		return d.fail("open", 0, err, "name an interface of this network namespace: ip link")
	}
	for _, id := range d.cfg.Queues {
		if id < 0 || id >= d.iface.queues {
			return d.fail("open", id, fmt.Errorf("no such queue: the device has %d", d.iface.queues),
				fmt.Sprintf("ethtool -L %s rx N or combined N changes their number, if the driver can", d.iface.name))
		}
	}
	multi, err := d.multiBuf()
	if err != nil {
		return d.fail("open", d.cfg.Queues[0], err, "")
	}
	if err := d.attach(multi); err != nil {
		return err
	}
	for i := range d.cfg.Queues {
		if err := d.openQueue(i, multi); err != nil {
			return err
		}
	}
	return d.start()
}

// multiBuf decides whether packets may span frames: where the MTU does not fit one, or the configuration asks for it.
// Otherwise it stays off, because drivers are slower with it and not all have it.
func (d *Device) multiBuf() (bool, error) {
	size := d.cfg.arena().FrameSize()
	room := size - d.cfg.Headroom
	if room < 128 {
		return false, fmt.Errorf("headroom of %d bytes in frames of %d leaves no room for packets", d.cfg.Headroom, size)
	}
	const tags = 2 * 4 // 802.1Q inside 802.1ad, which the MTU does not count
	fits := d.iface.mtu+minFrame+tags <= room
	if d.cfg.MultiBuf == MultiBufOff && !fits {
		return false, fmt.Errorf("%w: packets of MTU %d do not fit frames of %d bytes, %d of which are headroom: "+
			"lower the MTU to %d, use larger frames (at most 4096) or allow multi-buffer",
			pmd.ErrNotSupported, d.iface.mtu, size, d.cfg.Headroom, room-minFrame-tags)
	}
	return d.cfg.MultiBuf == MultiBufOn || !fits, nil
}

// attach loads the program with the first rules, opens the NIC's address filter for them and attaches
// the program to the interface. It passes everything to the kernel until the sockets are bound.
func (d *Device) attach(multi bool) (err error) {
	if d.prog, err = load(d.cfg.All); err != nil {
		return d.explain("load", 0, err)
	}
	if d.nic, err = openAddressFilter(d.iface.index); err != nil {
		return d.explain("bind", 0, err)
	}
	d.steer = d.prog.steering(d.cfg.All, d.nic)
	if d.cfg.All {
		err = d.nic.promiscuous()
	} else {
		err = d.steer.Add(d.cfg.Rules...)
	}
	if err != nil {
		return d.explain("steer", 0, err)
	}
	if err := d.prog.attach(d.iface.index, d.cfg.Mode, multi); err != nil {
		if busy := d.busyError(err); busy != nil {
			return busy
		}
		return d.explain("attach", 0, err)
	}
	return nil
}

// openQueue binds the socket of the i-th queue. The first registers the arena as UMEM, the others share it
// (XDP_SHARED_UMEM): a frame that one queue has received may then be sent by any other without a copy.
func (d *Device) openQueue(i int, multi bool) error {
	owner := -1 // the socket whose UMEM is shared
	if i > 0 {
		owner = d.Queues[0].fd
	}
	id, pool := d.cfg.Queues[i], d.cfg.Pools[i]
	addr := unix.SockaddrXDP{Ifindex: uint32(d.iface.index), QueueID: uint32(id)}
	s, err := openSocket(&d.cfg, addr, owner, multi)
	if err != nil {
		return d.explain("bind", id, err)
	}
	q := newQueue(&d.cfg, s, id, pool)
	q.dev = d
	d.Queues = append(d.Queues, q)
	if err := d.openLarge(q); err != nil {
		return d.explain("bind", id, err)
	}
	return nil
}

// start describes the queues, fills their rings and lets packets in: the other order would lose the first
// packets for want of a frame.
func (d *Device) start() error {
	for _, q := range d.Queues {
		q.info = d.describe(q)
		q.maxPacket = uint32(d.iface.mtu + minFrame + vlanTag)
		if !d.cfg.FillLater {
			q.refill()
		}
	}
	for _, q := range d.Queues {
		if err := d.prog.bind(q.id, q.fd); err != nil {
			return d.explain("steer", q.id, err)
		}
	}
	return nil
}

// describe returns the part of Info that does not change: Info is called often and from any goroutine.
func (d *Device) describe(q *Queue) pmd.Info {
	caps := pmd.CapPoll
	words := []string{d.modeWords()}
	for _, c := range []struct {
		on  bool
		bit pmd.Caps
		yes string
		no  string
	}{
		{q.zeroCopy, pmd.CapZeroCopy, "zero-copy", "copy"},
		{q.wakeup, pmd.CapNeedWakeup, "need_wakeup", "no need_wakeup"},
		{q.busyPoll, pmd.CapBusyPoll, "busy poll", ""},
		{q.multi, pmd.CapMultiBuf, "multi-buffer", ""},
		{q.large != nil, pmd.CapOffload, "segmentation offload on transmit", ""},
		{d.iface.virtual, pmd.CapPartialChecksums, "", ""},
	} {
		if c.on {
			caps |= c.bit
			if c.yes != "" {
				words = append(words, c.yes)
			}
		} else if c.no != "" {
			words = append(words, c.no)
		}
	}
	if q.large != nil && vnet.SegmentsUDP() {
		caps |= pmd.CapOffloadUDP
	}
	words = append(words, fmt.Sprintf("%d of %d queues", len(d.Queues), d.iface.queues),
		fmt.Sprintf("%d-byte frames in %s pages", q.frame, d.cfg.arena().Pages()))
	return pmd.Info{
		Driver: "afxdp", Device: d.iface.name, Queue: q.id, MTU: d.iface.mtu, MAC: d.iface.mac,
		Caps: caps, FD: q.fd, Negotiated: strings.Join(words, ", "), RxRing: min(d.cfg.Rings.Rx, d.cfg.rxFrames(q.pool)),
	}
}

// modeWords returns the XDP mode for Info.Negotiated, with the reason of a fallback: generic mode costs a copy and an skb
// for each packet, which a user must be able to see.
func (d *Device) modeWords() string {
	words := d.prog.held.Mode().String()
	if d.prog.held.InDispatcher() {
		return words + ", behind other XDP programs"
	}
	if err := d.prog.held.NotNative(); err != nil {
		return words + " (not native: " + whyNotNative(err) + ")"
	}
	return words
}

// LosesLarge reports why packets of senders on this machine that are larger than the MTU are lost: XDP is generic, and such a packet
// comes whole there; "" where they are not. In native mode a virtual interface is given them in segments.
func (d *Device) LosesLarge() string {
	if err := d.prog.held.NotNative(); err != nil && d.iface.virtual {
		return "XDP is generic (" + whyNotNative(err) + "), and large packets of senders on this machine would be lost"
	}
	return ""
}

// Steering returns the rules of the device.
func (d *Device) Steering() *Steering { return d.steer }

// SetPrefilter has p see all packets before the steering program does; nil: none any more. Where that fails nothing
// changes. It is not called together with Close.
func (d *Device) SetPrefilter(p *pmd.Prefilter) error {
	if err := d.prog.setPrefilter(p); err != nil {
		return d.explain("attach", 0, err)
	}
	return nil
}

// Close closes the queues that are still open and takes the program off the interface. No loop may
// be polling any more.
func (d *Device) Close() error {
	var errs []error
	if d.prog != nil {
		errs = append(errs, d.prog.close()) // first, so that nothing is steered to a closing socket
		d.prog = nil
	}
	for _, q := range d.Queues {
		errs = append(errs, q.Close())
	}
	if d.nic != nil {
		errs = append(errs, d.nic.close())
		d.nic = nil
	}
	return errors.Join(errs...)
}

// fail wraps an error with the place and the remedy.
func (d *Device) fail(op string, queue int, err error, remedy string) error {
	return &pmd.OpError{Op: op, Device: d.cfg.Interface, Queue: queue, Err: err, Remedy: remedy}
}
