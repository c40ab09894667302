// Package testnet builds small networks out of Linux network namespaces and veth pairs: for tests
// that speak with real programs, for the benchmarks and for `make run`.
//
//	n, err := testnet.New("mr-test")
//	defer n.Close()
//	client, gateway := n.Namespace("client"), n.Namespace("gateway")
//	err = n.Link(client, "eth0", gateway, "gw0")
//	err = client.Up("eth0", "198.18.0.2/24", "2001:db8:0::2/64")
//	err = client.Do(func() error { ... })         // Go code inside
//	err = client.Start(exec.Command("curl", ...)) // programs inside
//
// Everything needs root. Addresses come from the ranges set aside for benchmarks and documentation
// (198.18.0.0/15, 2001:db8::/32) and no namespace has a way out.
package testnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const dir = "/run/netns" // where ip-netns(8) looks, so that its users can follow

// Net is a set of namespaces with a common prefix in their names.
type Net struct {
	prefix string
	lock   net.Listener // nil once closed, or replaced by a later network of this process
	spaces []*Namespace
}

// Namespace is one network namespace: a host of the network.
type Namespace struct {
	Name string // as `ip netns` shows it
	fd   netns.NsHandle
	err  error // why it could not be made

	pairs map[string]*vethPair // that Link has made, by the name of the end here
}

// New returns an empty network. Namespaces with the same prefix that an earlier, killed run left
// are removed; while that run is alive the error is ErrInUse. A network that this process has not
// closed is replaced: its namespaces lose their names.
func New(prefix string) (*Net, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	n := &Net{prefix: prefix}
	if err := n.claim(); err != nil {
		return nil, err
	}
	if err := errors.Join(shareDir(), n.clean()); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// shareDir makes the folder of names a mount of its own that propagates, as ip-netns(8) does before its
// first namespace. Otherwise an `ip netns` beside a test would mount the folder over the test's names,
// which could then be neither used nor removed.
func shareDir() error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() // and the lock
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	share := func() error { return unix.Mount("", dir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	if err = share(); errors.Is(err, unix.EINVAL) { // it is no mount yet
		if err = unix.Mount(dir, dir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// clean removes what a killed run left.
func (n *Net) clean() error {
	left, err := filepath.Glob(filepath.Join(dir, n.prefix+"-*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		_ = unix.Unmount(path, unix.MNT_DETACH)
		_ = os.Remove(path)
	}
	return nil
}

// Namespace adds a namespace with its loopback up. A failure is kept and returned by whatever the
// namespace is used for.
func (n *Net) Namespace(name string) *Namespace {
	ns := &Namespace{Name: n.prefix + "-" + name, fd: netns.None(), pairs: map[string]*vethPair{}}
	n.spaces = append(n.spaces, ns)
	if err := ns.create(); err != nil {
		ns.err = fmt.Errorf("namespace %s: %w", ns.Name, err)
	}
	return ns
}

// create makes the namespace on a thread of its own, which is thrown away, and binds it to a name.
func (ns *Namespace) create() error {
	path := filepath.Join(dir, ns.Name)
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
		if err != nil {
			return err
		}
		f.Close()
		if err := unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, ""); err != nil {
			os.Remove(path)
			return err
		}
		if ns.fd, err = netns.GetFromPath(path); err != nil {
			return err
		}
		// Link-local addresses are usable at once: the links have two ends and no strangers.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o644); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
}

// onThread runs f on an OS thread that no other goroutine ever uses again, so that f may change
// the thread's namespace.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// Do runs f inside the namespace. Goroutines that f starts run outside of it; sockets that f opens
// stay inside for good.
func (ns *Namespace) Do(f func() error) error {
	if ns.err != nil {
		return ns.err
	}
	return onThread(func() error {
		if err := netns.Set(ns.fd); err != nil {
			return fmt.Errorf("enter namespace %s: %w", ns.Name, err)
		}
		return f()
	})
}

// Start starts cmd inside the namespace. The caller waits for it.
func (ns *Namespace) Start(cmd *exec.Cmd) error { return ns.Do(cmd.Start) }

// Run runs a program inside the namespace and returns what it printed.
func (ns *Namespace) Run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := ns.Start(cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}

// Link joins two namespaces by a veth pair with one queue and the given names.
func (n *Net) Link(a *Namespace, nameA string, b *Namespace, nameB string) error {
	return n.LinkQueues(a, nameA, b, nameB, 1)
}

// LinkQueues is Link with the given number of receive and transmit queues on both sides.
func (n *Net) LinkQueues(a *Namespace, nameA string, b *Namespace, nameB string, queues int) error {
	if b.err != nil {
		return b.err
	}
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: nameA, NumRxQueues: queues, NumTxQueues: queues, MTU: 1500},
		PeerName:      nameB,
		PeerNamespace: netlink.NsFd(b.fd),
	}
	err := a.Do(func() error { return netlink.LinkAdd(veth) })
	if err != nil {
		return fmt.Errorf("link %s/%s to %s/%s: %w", a.Name, nameA, b.Name, nameB, err)
	}
	p := &vethPair{down: []end{{a, nameA}, {b, nameB}}}
	a.pairs[nameA], b.pairs[nameB] = p, p
	return nil
}

// Up brings an interface up with the given addresses (with prefix length). IPv6 addresses are
// usable at once: duplicate address detection is off. So is a pair whose other end is up.
func (ns *Namespace) Up(name string, addrs ...string) error {
	if err := ns.up(name, addrs); err != nil {
		return err
	}
	return ns.pairs[name].await(name)
}

func (ns *Namespace) up(name string, addrs []string) error {
	return ns.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		for _, s := range addrs {
			addr, err := netlink.ParseAddr(s)
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("address %s on %s: %w", s, name, err)
			}
		}
		return nil
	})
}

// Route adds a route to a prefix ("default" too) by way of a gateway address.
func (ns *Namespace) Route(prefix, via string) error {
	family := "-4"
	if strings.Contains(via, ":") {
		family = "-6"
	}
	_, err := ns.Run("ip", family, "route", "replace", prefix, "via", via)
	return err
}

// Sysctl sets a value below /proc/sys/net for the namespace, named with dots.
func (ns *Namespace) Sysctl(name, value string) error {
	return ns.Do(func() error {
		return os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0o644)
	})
}

// Close removes every namespace, and with them their links. It may be called twice.
func (n *Net) Close() error {
	var errs []error
	for _, ns := range n.spaces {
		if ns.fd.IsOpen() {
			errs = append(errs, ns.fd.Close())
		}
		if n.lock == nil {
			continue // the names are another network's
		}
		path := filepath.Join(dir, ns.Name)
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	n.spaces = nil
	return errors.Join(append(errs, n.yield())...) // last: the prefix is free once nothing is left
}
