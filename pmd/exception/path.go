package exception

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/tap"
	"github.com/millrace/millrace/ring"
)

// Config describes a path. Device, Pools and Interface are required.
type Config struct {
	Device    []pmd.Driver // the queues of the device
	Pools     []*ring.Pool // of the queues, in their order
	Interface string       // TAP interface to make; it has the device's link address and MTU

	// Steer gives the rules to a device that can mark what they claim (packet.RuleClaimed), which is then not looked up here; nil: it
	// has none.
	Steer func(rules ...pmd.Rule) error

	// Networks holds the kernel's addresses and routes on the device's own interface (SaveNetworks). The TAP interface gets
	// them; on Close they return to an interface of the same name.
	Networks *Networks

	// CloseDevice closes the queues that are open, stops the device and gives it back to the kernel; nil: nothing but queues is
	// to be closed.
	CloseDevice func() error
}

// Path is an open exception path.
type Path struct {
	Queues []*Queue // each belongs to one loop

	cfg     Config
	tap     *tap.Device
	links   *netlink.Handle // in the network namespace of Open
	matcher atomic.Pointer[Matcher]
	closed  bool
}

// Open makes the TAP interface in the network namespace of the calling thread and brings it up. It owns the device from
// then on, also where it fails. No rule claims anything until Steer.
func Open(cfg Config) (*Path, error) {
	p := &Path{cfg: cfg}
	if err := p.open(); err != nil {
		return nil, errors.Join(&pmd.OpError{
			Op: "exception path", Device: cfg.Interface, Err: err,
			Remedy: "the name must be free, and the process needs CAP_NET_ADMIN and /dev/net/tun",
		}, p.Close())
	}
	return p, nil
}

func (p *Path) open() (err error) {
	if err := p.Steer(); err != nil {
		return err
	}
	if p.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if _, err := net.InterfaceByName(p.cfg.Interface); err == nil {
		return fmt.Errorf("%w: there is an interface %s already", pmd.ErrBusy, p.cfg.Interface)
	}
	info := p.cfg.Device[0].Info()
	if p.tap, err = tap.Open(tap.Config{Interface: p.cfg.Interface, Pools: p.cfg.Pools, MTU: info.MTU}); err != nil {
		return err
	}
	link, err := p.links.LinkByName(p.tap.Name)
	if err != nil {
		return err
	}
	// With the device's address the kernel takes the frames that others send to it, and is known to them by it.
	if err := p.links.LinkSetHardwareAddr(link, info.MAC[:]); err != nil {
		return fmt.Errorf("link address %v: %w", net.HardwareAddr(info.MAC[:]), err)
	}
	if err := p.links.LinkSetUp(link); err != nil {
		return err
	}
	if err := p.cfg.Networks.move(p.links, link); err != nil {
		return err
	}
	for i, dev := range p.cfg.Device {
		p.Queues = append(p.Queues, newQueue(p, dev, p.tap.Queues[i], p.cfg.Pools[i]))
	}
	return nil
}

// Interface returns the name of the TAP interface.
func (p *Path) Interface() string { return p.tap.Name }

// Steer makes rules the only ones, while packets flow. It may be called in any goroutine.
func (p *Path) Steer(rules ...pmd.Rule) error {
	m, err := NewMatcher(rules...)
	if err != nil {
		return err
	}
	p.matcher.Store(m)
	if p.cfg.Steer != nil {
		return p.cfg.Steer(rules...)
	}
	return nil
}

// Close closes the queues and the device, removes the TAP interface, and returns its addresses and routes to the
// interface that they come from, if that is there again. The loops must have stopped.
func (p *Path) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	var errs []error
	networks := p.cfg.Networks
	if p.tap != nil && networks != nil { // what the kernel has now: addresses may have changed since
		if now, err := save(p.links, p.tap.Name); err == nil {
			now.name = networks.name
			networks = now
		}
	}
	for _, q := range p.Queues {
		errs = append(errs, q.Close())
	}
	if len(p.Queues) == 0 && p.cfg.CloseDevice == nil { // Open has failed before there were any
		for _, dev := range p.cfg.Device {
			errs = append(errs, dev.Close())
		}
	}
	if p.cfg.CloseDevice != nil {
		errs = append(errs, p.cfg.CloseDevice())
	}
	if p.tap != nil {
		errs = append(errs, p.tap.Close())
	}
	if p.links != nil {
		errs = append(errs, networks.giveBack(p.links))
		p.links.Close()
	}
	return errors.Join(errs...)
}

// batchSize is the number of descriptors that wait for the kernel, or for the device, at most.
const batchSize = packet.BatchSize
