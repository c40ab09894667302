package testnet

import (
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// vethPair is a veth pair that Link has made.
type vethPair struct {
	down, up []end // which Up has not brought up yet, and which it has
}

type end struct {
	ns   *Namespace
	name string
}

// await returns, when both ends have come up for the first time, once both send what they are given. The kernel
// activates the queue of a device in a worker that sees its carrier, and drops packets until then.
func (p *vethPair) await(name string) error {
	if p == nil || len(p.down) == 0 {
		return nil
	}
	i := slices.IndexFunc(p.down, func(e end) bool { return e.name == name })
	if i < 0 {
		return nil
	}
	p.up = append(p.up, p.down[i])
	if p.down = slices.Delete(p.down, i, i+1); len(p.down) > 0 {
		return nil
	}
	for _, e := range p.up {
		if err := e.await(); err != nil {
			return err
		}
	}
	return nil
}

// awaitActive is a guard: the worker takes milliseconds.
const awaitActive = 30 * time.Second

func (e end) await() error {
	return e.ns.Do(func() error {
		for guard := time.Now().Add(awaitActive); ; time.Sleep(time.Millisecond) {
			link, err := netlink.LinkByName(e.name)
			switch {
			case err != nil:
				return err
			case link.Attrs().OperState == netlink.OperUp:
				return nil
			case time.Now().After(guard):
				return fmt.Errorf("%s is %v after %v", e.name, link.Attrs().OperState, awaitActive)
			}
		}
	})
}
