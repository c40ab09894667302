package role

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/filter/ebpf"
)

// openXDPDrop drops all packets of a device in XDP, by one of:
//
//	-as c          the object of the argument, attached as it is: nothing is less work
//	-as filter     the same object as `millrace filter` attaches it: by a dispatcher where the kernel allows one
//	-as defence    the gateway's defence, with a verdict on the packets' source
//	-as prefix     the same, with a verdict on 0.0.0.0/0
//
// Packets are counted by the device, so that no program counts.
func openXDPDrop(o roleOptions) (roleWork, error) {
	nic, err := net.InterfaceByName(o.dev)
	if err != nil {
		return roleWork{}, err
	}
	if err := takeOff(nic.Index); err != nil { // what a killed run has left stays attached
		return roleWork{}, err
	}
	object := o.args[0]
	w := roleWork{version: "XDP_DROP", counts: func() (map[string]uint64, error) { return receivedBy(nic.Index) }}
	if o.as == "c" {
		w.close, err = dropInC(object, nic.Index)
		return w, err
	}
	if o.as == "defence" || o.as == "prefix" {
		w.version, w.close, err = dropByDefence(o.as == "prefix", nic.Index)
		return w, err
	}
	root, err := os.MkdirTemp("", "millrace-bpffs-")
	if err != nil {
		return w, err
	}
	s, err := ebpf.Open(root)
	if err != nil {
		return w, errors.Join(err, os.Remove(root))
	}
	w.close = func() error {
		objects, err := s.Objects()
		for _, o := range objects {
			_, e := s.Unload(o.Name, true)
			err = errors.Join(err, e)
		}
		return errors.Join(err, unix.Unmount(root, unix.MNT_DETACH), os.Remove(root))
	}
	w.version, err = dropByFilter(s, o, object)
	if err != nil {
		return w, errors.Join(err, w.close())
	}
	return w, nil
}

// dropInC attaches an object's only program.
func dropInC(path string, ifindex int) (closeLink func() error, err error) {
	c, err := cilium.LoadCollection(path)
	if err != nil {
		return nil, err
	}
	defer c.Close() // the link holds it
	for _, p := range c.Programs {
		l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: ifindex, Flags: link.XDPDriverMode})
		if err != nil {
			return nil, err
		}
		return l.Close, nil
	}
	return nil, fmt.Errorf("%s has no program", path)
}

// dropByDefence attaches the defence of a process, which ends with close.
func dropByDefence(prefix bool, ifindex int) (version string, closeAll func() error, err error) {
	d, err := ebpf.LoadDefence()
	if err != nil {
		return "", nil, err
	}
	v := ebpf.Verdict{Prefix: netip.PrefixFrom(probeSource, 32), Rule: 1, For: time.Hour}
	if prefix {
		v = ebpf.Verdict{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Rule: 1}
	}
	if err := d.Put(v); err != nil {
		return "", nil, errors.Join(err, d.Close())
	}
	a, err := d.Attach(ifindex)
	if err != nil {
		return "", nil, errors.Join(err, d.Close())
	}
	return a.String() + ", a verdict on " + v.Prefix.String(), func() error { return errors.Join(a.Close(), d.Close()) }, nil
}

// dropByFilter attaches the object as `millrace filter` does, and returns how.
func dropByFilter(s *ebpf.Store, o roleOptions, path string) (string, error) {
	if _, err := s.Load(path, "drop"); err != nil {
		return "", err
	}
	return attachedAs(s, "drop", o.dev)
}

func attachedAs(s *ebpf.Store, name, dev string) (string, error) {
	if err := s.AttachXDP(name, dev, ebpf.XDPOptions{}); err != nil {
		return "", err
	}
	hooks, err := s.Hooks(dev)
	if err != nil {
		return "", err
	}
	if hooks[0].Dispatcher != 0 {
		return "a component of a dispatcher", nil
	}
	return "alone: the kernel refuses extension programs", nil
}

// takeOff takes the program that was attached by netlink off a device.
func takeOff(ifindex int) error {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil || !l.Attrs().Xdp.Attached {
		return err
	}
	return netlink.LinkSetXdpFd(l, -1)
}

// receivedBy returns the device's count of received packets, dropped ones too.
func receivedBy(ifindex int) (map[string]uint64, error) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil, err
	}
	return map[string]uint64{"packets": l.Attrs().Statistics.RxPackets}, nil
}
