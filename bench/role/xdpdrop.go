package role

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
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
// Packets are counted by the device, so that no program counts. With RunAlone behind the object, nothing is to be sent:
// the kernel runs what is attached on a frame, again and again.
func openXDPDrop(o roleOptions) (roleWork, error) {
	w, err := attachXDPDrop(o)
	if err != nil || len(o.args) == 1 || o.args[1] != RunAlone {
		return w, err
	}
	nic, err := net.InterfaceByName(o.dev)
	if err == nil {
		err = w.runAlone(nic.Index, o.size)
	}
	if err != nil {
		return roleWork{}, errors.Join(err, w.close())
	}
	return w, nil
}

// RunAlone is the argument for a program that is run without a device's frames.
const RunAlone = "alone"

// runAlone runs the program of a device on one frame of size bytes.
func (w *roleWork) runAlone(ifindex, size int) error {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	prog, err := cilium.NewProgramFromID(cilium.ProgramID(l.Attrs().Xdp.ProgId))
	if err != nil {
		return err
	}
	const repeat, dropped = 20_000, 1 // XDP_DROP
	frame := make([]byte, size)
	copy(frame[12:], []byte{8, 0, 0x45, 0, 0, byte(size - 14)})
	copy(frame[26:], probeSource.AsSlice())
	var runs atomic.Uint64
	w.step = func() error {
		result, _, err := prog.Benchmark(frame, repeat, nil)
		if err == nil && result != dropped {
			err = fmt.Errorf("the program returned %d", result)
		}
		runs.Add(repeat)
		return err
	}
	w.counts = func() (map[string]uint64, error) { return map[string]uint64{"packets": runs.Load()}, nil }
	closeDevice := w.close
	w.close = func() error { return errors.Join(prog.Close(), closeDevice()) }
	return nil
}

// attachXDPDrop attaches what drops.
func attachXDPDrop(o roleOptions) (roleWork, error) {
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
