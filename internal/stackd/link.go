package stackd

import (
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The states of an interface.
const (
	linkUp        = "up"
	linkDown      = "down"
	linkNoCarrier = "no carrier"
	linkGone      = "gone" // also if another comes by its name: the host has to be started again
)

// links knows the states of the host's interfaces. It has a goroutine until close.
type links struct {
	mu    sync.Mutex
	name  map[int]string    // by the kernel's index
	state map[string]string // by name
	end   chan struct{}     // closed by close
	ended chan struct{}     // the goroutine has ended
}

// openLinks begins to watch the interfaces, which are open.
func (d *Daemon) openLinks() error {
	l := &links{name: map[int]string{}, state: map[string]string{}, end: make(chan struct{}), ended: make(chan struct{})}
	updates := make(chan netlink.LinkUpdate, 64)
	if err := netlink.LinkSubscribe(updates, l.end); err != nil {
		return fmt.Errorf("watching interfaces: %w", err)
	}
	go func() {
		defer close(l.ended)
		for u := range updates {
			d.linkChanged(l, &u)
		}
	}()
	d.links = l
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range d.cfg.Devices {
		link, err := netlink.LinkByName(v.Name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", v.Name, err)
		}
		l.name[link.Attrs().Index], l.state[v.Name] = v.Name, linkState(link.Attrs().RawFlags)
		if s := l.state[v.Name]; s != linkUp {
			d.opt.Log.Warn("device", "name", v.Name, "state", s)
		}
	}
	return nil
}

func linkState(flags uint32) string {
	switch {
	case flags&unix.IFF_UP == 0:
		return linkDown
	case flags&unix.IFF_RUNNING == 0:
		return linkNoCarrier
	}
	return linkUp
}

// linkChanged says what the kernel tells of an interface, if it is one of the host's and new.
func (d *Daemon) linkChanged(l *links, u *netlink.LinkUpdate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name, mine := l.name[int(u.Index)]
	if !mine {
		return
	}
	state := linkState(u.Attrs().RawFlags)
	if u.Header.Type == unix.RTM_DELLINK {
		state = linkGone
		delete(l.name, int(u.Index))
	}
	if state == l.state[name] {
		return
	}
	l.state[name] = state
	if state == linkUp {
		d.opt.Log.Info("device", "name", name, "state", state)
	} else {
		d.opt.Log.Warn("device", "name", name, "state", state)
	}
}

// of returns the state of an interface.
func (l *links) of(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state[name]
}

func (l *links) close() {
	close(l.end)
	<-l.ended
}
