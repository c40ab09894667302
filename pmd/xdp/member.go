package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Member is a component that belongs to a process: it leaves the dispatcher with Leave. The process holds the attachment
// (bpf_link) by a descriptor alone, so that the kernel detaches the program when the process ends without Leave (SIGKILL): the
// dispatcher's own function is in its place again, which continues with the next component. The pin of the program stays
// until the next Update of the interface.
//
// Where another process has rebuilt the dispatcher meanwhile (xdp-loader, millrace filter), the attachment is pinned, and the
// component stays until the next Update. One that redirects to sockets then passes all packets, because the sockets are
// gone, but one that drops, such as a defence, goes on to drop.
type Member struct {
	fs      *FS
	ifindex int
	id      uint32
	alive   int // bound to the name that says that the process lives
	netns   int
	link    attachment // nil: of none yet
}

// attachment is a component in its place of a dispatcher: a bpf_link.
type attachment interface {
	Pin(path string) error
	Close() error
}

// heldLink is the attachment of a member to a dispatcher that is not on the interface yet.
type heldLink struct {
	member *Member
	link   attachment
}

// members are those of this process, by the ids of their programs: each dispatcher that this process builds attaches them by
// links that it holds.
var members struct {
	sync.Mutex
	list map[uint32]*Member
}

// register adds a member of this process; release removes it.
func (m *Member) register() {
	members.Lock()
	defer members.Unlock()
	if members.list == nil {
		members.list = map[uint32]*Member{}
	}
	members.list[m.id] = m
}

// memberOf returns the member of this process with a program, or nil.
func memberOf(id uint32) *Member {
	members.Lock()
	defer members.Unlock()
	return members.list[id]
}

// holdOrClose gives members the attachments to a dispatcher that is on the interface now, in the place of those to the one
// before, or closes them where it is not.
func holdOrClose(list []heldLink, onInterface bool) {
	members.Lock()
	defer members.Unlock()
	for _, h := range list {
		old := h.link
		if onInterface {
			old, h.member.link = h.member.link, h.link
		}
		if old != nil {
			_ = old.Close() // of a dispatcher that no packet meets
		}
	}
}

// Last is the priority of a component that is called behind all others.
const Last = 1<<31 - 1

// Join adds a component of this process to the dispatcher of an interface of the calling thread's network namespace. An
// interface without a dispatcher is an error.
func (f *FS) Join(ifindex int, c Component) (*Member, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	defer c.prog.Close()
	m := &Member{fs: f, ifindex: ifindex, id: c.ID, alive: -1, netns: -1}
	m.register()
	err := m.announce()
	if err == nil {
		err = f.Update(ifindex, ModeAny, func(now []Component) ([]Component, error) {
			if len(now) == 0 {
				return nil, fmt.Errorf("%w: the interface has no dispatcher", ErrForeign)
			}
			return append(now, Component{FD: c.FD, Priority: c.Priority, Actions: c.Actions, Frags: c.Frags}), nil
		})
	}
	if err != nil {
		return nil, errors.Join(err, m.release())
	}
	return m, nil
}

// announce binds the name and records that the component belongs to a process.
func (m *Member) announce() (err error) {
	if m.netns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if m.alive, err = bindName(m.id); err != nil {
		return fmt.Errorf("name of the process of program %d: %w", m.id, err)
	}
	cookie, err := Namespace()
	if err != nil {
		return err
	}
	return os.MkdirAll(m.fs.owned(cookie, m.ifindex, m.id), 0o700)
}

// bindName binds a socket to the abstract name (unix(7)) of the owner of a program. The name is free again when the process
// has ended, however that was. It belongs to the network namespace, not to a namespace of processes.
func bindName(id uint32) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@millrace-xdp-%d", id)}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Leave takes the component off the interface, from any thread. It is called once.
func (m *Member) Leave() error {
	err := m.inNamespace(func() error {
		err := m.fs.Update(m.ifindex, ModeAny, func(now []Component) ([]Component, error) { return without(now, m.id), nil })
		if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, ErrForeign) {
			err = nil // the interface is gone, or its dispatcher is: somebody has taken off all
		}
		return errors.Join(err, m.forget())
	})
	return errors.Join(err, m.release())
}

func without(list []Component, id uint32) []Component {
	return slices.DeleteFunc(list, func(c Component) bool { return c.ID == id })
}

// forget removes the record of the member.
func (m *Member) forget() error {
	cookie, err := Namespace()
	if err != nil {
		return err
	}
	return removePins(m.fs.owned(cookie, m.ifindex, m.id))
}

// release ends what the process holds of the member, also the attachment.
func (m *Member) release() (err error) {
	members.Lock()
	if delete(members.list, m.id); m.link != nil {
		err = m.link.Close()
		m.link = nil
	}
	members.Unlock()
	for _, fd := range []int{m.alive, m.netns} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// inNamespace runs f in the network namespace of the interface.
func (m *Member) inNamespace(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var here, there unix.Stat_t
		err := errors.Join(unix.Stat("/proc/thread-self/ns/net", &here), unix.Fstat(m.netns, &there))
		if err == nil && here.Ino != there.Ino {
			err = unix.Setns(m.netns, unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// owned is the record of a component that belongs to a process.
func (f *FS) owned(cookie uint64, ifindex int, id uint32) string {
	return filepath.Join(f.root, "millrace", "owned", fmt.Sprintf("%x-%d-%d", cookie, ifindex, id))
}

// orphans returns which of the components of an interface belonged to a process that is gone.
func (f *FS) orphans(ifindex int, list []Component) (gone []uint32) {
	cookie, err := Namespace()
	if err != nil {
		return nil
	}
	for _, c := range list {
		if _, err := os.Stat(f.owned(cookie, ifindex, c.ID)); err != nil {
			continue
		}
		if fd, err := bindName(c.ID); err == nil {
			unix.Close(fd)
			gone = append(gone, c.ID)
		}
	}
	return gone
}

// forgetOrphans removes the records of components that an update has taken off.
func (f *FS) forgetOrphans(ifindex int, gone []uint32) (err error) {
	cookie, err := Namespace()
	for _, id := range gone {
		err = errors.Join(err, removePins(f.owned(cookie, ifindex, id)))
	}
	return err
}
