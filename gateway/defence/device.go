package defence

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/pmd"
)

// device is an interface with the program, or one that lacks it.
type device struct {
	name   string
	opened bool // by the gateway, which says when it comes back
	index  int
	why    string // it lacks the program

	at    *ebpf.Attachment // alone or in a dispatcher; nil otherwise
	chain *chain           // before the program of a driver; nil otherwise
}

// chain is the programs before that of a driver. A program that has been replaced stays until the next one is: the map
// with the program behind it ends with it, and it may be at the interface until the driver has made the change.
type chain struct {
	mu            sync.Mutex
	now, replaced *ebpf.Attachment
}

// xdp returns a program that continues with another; see pmd.Prefilter.
func (c *chain) xdp(maps *ebpf.Defence, next int, frags bool) (int, error) {
	a, err := maps.Before(next, frags)
	if err != nil {
		return -1, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replaced != nil {
		err = c.replaced.Close()
	}
	c.now, c.replaced = a, c.now
	return a.FD(), err
}

func (c *chain) close() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range []*ebpf.Attachment{c.now, c.replaced} {
		if a != nil {
			err = errors.Join(err, a.Close())
		}
	}
	return err
}

// Driver is a device that a driver of the gateway has opened.
type Driver struct {
	Name  string // of the interface
	Index int
	XDP   bool // its program holds the XDP hook
	NoXDP bool // its packets do not pass the hook, as those that a program reads from a TAP device

	// Set gives the driver a program before its own, as device.SetPrefilter; nil takes it away. It is called with XDP alone.
	Set func(*pmd.Prefilter) error
}

// AttachTo attaches the program to a device that a driver has opened, in the network namespace of the calling thread: before
// the program of the driver, where that holds the XDP hook alone. It returns in which way. Another call for the same
// interface takes away what the first one has attached.
func (d *Defence) AttachTo(driver Driver) (how string, err error) {
	dev := d.device(driver.Name)
	d.mu.Lock()
	old := *dev
	*dev = device{name: driver.Name, opened: true, index: driver.Index}
	d.mu.Unlock()
	_ = old.detach() // what the old interface had is gone with it
	at, c, err := d.attachTo(driver)
	d.mu.Lock()
	defer d.mu.Unlock()
	dev.at, dev.chain = at, c
	if err != nil {
		dev.why = err.Error()
	}
	return dev.how(), err
}

var errNoXDP = errors.New("packets that a program reads from a TAP device do not pass XDP")

func (d *Defence) attachTo(driver Driver) (*ebpf.Attachment, *chain, error) {
	if driver.NoXDP {
		return nil, nil, errNoXDP
	}
	if driver.XDP {
		c := &chain{}
		err := driver.Set(&pmd.Prefilter{XDP: func(next int, frags bool) (int, error) { return c.xdp(d.maps, next, frags) }})
		if err == nil {
			return nil, c, nil
		}
		if err = errors.Join(err, c.close()); !errors.Is(err, pmd.ErrNotSupported) {
			return nil, nil, err
		}
	}
	at, err := d.maps.Attach(driver.Index) // a driver that has joined a dispatcher is behind it
	return at, nil, err
}

// Attach attaches the program to interfaces that no driver of the gateway opens. Run attaches it anew when one comes back.
func (d *Defence) Attach(names ...string) error {
	for _, name := range names {
		dev := d.device(name)
		if err := d.attach(dev); err != nil {
			return fmt.Errorf("defence: device %s: %w", name, err)
		}
	}
	return nil
}

func (d *Defence) attach(dev *device) error {
	i, err := net.InterfaceByName(dev.name)
	var at *ebpf.Attachment
	if err == nil {
		at, err = d.maps.Attach(i.Index)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		dev.why = err.Error()
		return err
	}
	dev.at, dev.index, dev.why = at, i.Index, ""
	return nil
}

// reattach attaches the program to interfaces that have come back, in the network namespace of Open.
func (d *Defence) reattach() {
	d.attaching.Lock()
	defer d.attaching.Unlock()
	if d.suspended {
		return
	}
	d.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(d.devices), func(dev *device) bool { return dev.opened })
	d.mu.Unlock()
	if len(list) == 0 {
		return
	}
	_ = inNamespace(d.namespace, func() error { d.reattachAll(list); return nil })
}

func (d *Defence) reattachAll(list []*device) {
	for _, dev := range list {
		_, err := net.InterfaceByName(dev.name)
		_, lost := net.InterfaceByIndex(dev.index) // which an interface keeps when it is renamed
		d.mu.Lock()
		opened, at, stays := dev.opened, dev.at, dev.at != nil && lost == nil
		if at != nil && !opened && !stays {
			dev.at, dev.why = nil, "the interface is gone"
		}
		d.mu.Unlock()
		if opened || stays { // a driver may have opened the interface meanwhile
			continue
		}
		if at != nil {
			_ = at.Close()
		}
		if err == nil {
			_ = d.attach(dev) // the status says why not
		}
	}
}

// Missing returns why devices lack the program, nil where all have it.
func (d *Defence) Missing() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, dev := range d.devices {
		if dev.how() == "" {
			errs = append(errs, fmt.Errorf("defence: device %s: %s", dev.name, dev.why))
		}
	}
	return errors.Join(errs...)
}

// Gone notes that the interface of a driver is gone.
func (d *Defence) Gone(name string) {
	dev := d.device(name)
	d.mu.Lock()
	old := *dev
	*dev = device{name: name, opened: true, why: "the interface is gone"}
	d.mu.Unlock()
	_ = old.detach()
}

// Suspend takes the program off all devices, for another process. Verdicts stay.
func (d *Defence) Suspend() error {
	d.attaching.Lock()
	defer d.attaching.Unlock()
	d.suspended = true
	return d.Detach()
}

// Resume attaches the program again, after Suspend, to devices that no driver of the gateway opens; AttachTo does it for the others.
func (d *Defence) Resume() {
	d.attaching.Lock()
	d.suspended = false
	d.attaching.Unlock()
	d.reattach()
}

// Detach takes the program off all devices. Drivers have no program before theirs any more.
func (d *Defence) Detach() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dev := range d.devices {
		err = errors.Join(err, dev.detach())
		dev.at, dev.chain, dev.why = nil, nil, "the gateway ends"
	}
	return err
}

func (dev *device) detach() (err error) {
	if dev.at != nil {
		err = dev.at.Close()
	}
	if dev.chain != nil {
		err = errors.Join(err, dev.chain.close())
	}
	return err
}

// device returns the device of a name, a new one where there is none.
func (d *Defence) device(name string) *device {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dev := range d.devices {
		if dev.name == name {
			return dev
		}
	}
	dev := &device{name: name}
	d.devices = append(d.devices, dev)
	return dev
}

// how says in which way the device has the program.
func (dev *device) how() string {
	switch {
	case dev.chain != nil:
		return "before the driver's program"
	case dev.at != nil:
		return dev.at.String()
	}
	return ""
}
