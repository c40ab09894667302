package notify

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
)

// Listeners and bound UDP sockets are made again with the next node (exec --on-node-loss=rebind, docs/design/052-rebind.md). The library does
// it in the program; here the call that finds the end of the node waits, the Supervisor puts another file in the place of the program's
// descriptor (SECCOMP_ADDFD_FLAG_SETFD), and takes the old one out of the program's epoll instances.

// made holds what a program has made of a socket.
type made struct {
	addr     netip.AddrPort // invalid: it has no port
	scope    uint32
	permit   []byte
	instance uint32
	backlog  int // 0: it does not listen
	options  []madeOption
}

type madeOption struct {
	level, name int
	value       []byte
}

// maxMade is the number of sockets from which on those without a port are forgotten, and maxMadeOptions bounds the options of one.
const (
	maxMade        = 4096
	maxMadeOptions = 64
)

// memory has what the programs have made, by the cookies of their sockets.
type memory struct {
	mu   sync.Mutex
	made map[uint64]*made
}

// change calls f with what is known of the socket, if it is to be remembered.
func (c *call) change(fd int, f func(m *made)) {
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if !c.s.Rebinds || err != nil {
		return
	}
	w := &c.s.memory
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.made[cookie]
	if m == nil {
		for k, v := range w.made {
			if len(w.made) < maxMade {
				break
			}
			if !v.addr.IsValid() {
				delete(w.made, k)
			}
		}
		if w.made == nil {
			w.made = map[uint64]*made{}
		}
		m = &made{}
		w.made[cookie] = m
	}
	f(m)
}

func (m *made) setOption(level, name int, value []byte) {
	for i := range m.options {
		if o := &m.options[i]; o.level == level && o.name == name && !bytes.Equal(o.value, value) && len(value) <= 4 { // others are lists
			o.value = value
			return
		}
	}
	if len(m.options) < maxMadeOptions {
		m.options = append(m.options, madeOption{level, name, value})
	}
}

// recall returns what is known of the socket, a copy. A listener has at least its name.
func (c *call) recall(fd int) (m made) {
	c.change(fd, func(of *made) { m = *of })
	if local, remote, instance, ok := shim.OwnInstance(fd); ok && !remote.IsValid() {
		m.instance = instance
		if !m.addr.IsValid() {
			m.addr = local
		}
		m.backlog = max(m.backlog, 1)
	}
	return m
}

// renewal makes the socket of a call again.
type renewal struct{ *call }

// again waits until another node runs, and makes the socket again there. nil is that the call is to be done once more; EINVAL that the node
// has not ended: the program has shut the socket down. It closes fd.
func (c renewal) again(fd int) error {
	defer unix.Close(fd)
	m := c.recall(fd)
	if !m.addr.IsValid() || m.instance == 0 {
		return syscall.ENETDOWN
	}
	c.report("the node has ended: listeners and bound sockets are made again when it is back (--on-node-loss=rebind)")
	p := newPause(timeout(fd, unix.SO_RCVTIMEO))
	for {
		instance, err := c.s.client.Instance(int(c.tid), fd)
		switch {
		case err != nil || instance == 0:
		case instance == m.instance:
			return syscall.EINVAL
		case c.make(fd, &m) == nil:
			c.report("the node is back: listeners and bound sockets are made again")
			return nil
		}
		tick := make(chan struct{})
		timer := time.AfterFunc(rebindPause, func() { close(tick) })
		err = p.wait(c.call, tick)
		timer.Stop()
		if err != nil {
			return err
		}
	}
}

// rebindPause is the interval at which a call looks for the next node.
const rebindPause = 100 * time.Millisecond

// make puts a socket of the next node in the place of fd's. Another thread of the program may have done so before.
func (c renewal) make(fd int, m *made) error {
	c.s.making.Lock()
	defer c.s.making.Unlock()
	is, err := c.file(int32(c.args[0]))
	if err != nil {
		return err
	}
	defer unix.Close(is)
	if !sameSocket(is, fd) {
		return nil
	}
	mark := shim.ReadMark(fd)
	next, err := shim.NewSocket(mark.Kind, mark.V6, unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(next)
	if err := c.prepare(next, mark, m); err != nil {
		c.report(fmt.Sprintf("port %d cannot be had again: %v; it is tried again", m.addr.Port(), err))
		return err
	}
	if err := c.replace(fd, next); err != nil {
		return err
	}
	c.change(next, func(to *made) {
		instance := to.instance
		*to = *m
		to.instance = instance
	})
	return nil
}

func sameSocket(a, b int) bool {
	x, err := unix.GetsockoptUint64(a, unix.SOL_SOCKET, unix.SO_COOKIE)
	y, e := unix.GetsockoptUint64(b, unix.SOL_SOCKET, unix.SO_COOKIE)
	return err == nil && e == nil && x == y
}

// prepare gives a new socket what the program has given the old one.
func (c renewal) prepare(next int, mark shim.Mark, m *made) error {
	client, tid := c.s.client, int(c.tid)
	if mark.Kind != shim.Stream {
		if _, _, err := client.Names(tid, next); err != nil {
			return err
		}
	}
	on := []byte{1, 0, 0, 0}
	for _, o := range append(m.options, madeOption{unix.SOL_SOCKET, unix.SO_REUSEPORT, on}) { // other processes may share the socket
		_ = client.SetOption(tid, next, o.level, o.name, o.value) // it was right once
	}
	if mark.Kind == shim.Stream {
		_ = client.SetOption(tid, next, unix.SOL_SOCKET, unix.SO_REUSEADDR, on)
	}
	if _, _, err := client.Bind(tid, next, m.addr, m.scope, m.permit); err != nil {
		return err
	}
	if mark.Kind != shim.Stream {
		instance, err := client.Instance(tid, next)
		c.change(next, func(to *made) { to.instance = instance })
		return err
	}
	return client.Listen(tid, next, m.backlog)
}

// replace gives the program next under the number of fd's file, with its flags, and in its epoll instances.
func (c renewal) replace(fd, next int) error {
	number := int(int32(c.args[0]))
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(next), unix.F_SETFL, flags)
	}
	if err != nil {
		return err
	}
	for _, o := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if tv, err := unix.GetsockoptTimeval(fd, unix.SOL_SOCKET, o); err == nil {
			_ = unix.SetsockoptTimeval(next, unix.SOL_SOCKET, o, tv)
		}
	}
	watches := c.watches(number)
	defer func() {
		for _, w := range watches {
			unix.Close(w.epoll)
		}
	}()
	a := addition{id: c.id, flags: unix.SECCOMP_ADDFD_FLAG_SETFD, fd: uint32(next), newFD: uint32(number)}
	if c.closesOnExec(number) {
		a.newFlags = unix.O_CLOEXEC
	}
	if err := c.s.listener.add(&a); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rewatch(number, fd, next, watches)
	}()
	<-done
	return nil
}

// programWatch is an entry of an epoll instance of the program, of which epoll is a copy.
type programWatch struct {
	epoll int
	event unix.EpollEvent
}

// watches returns the epoll instances of the program that have the file under the number (proc_pid_fdinfo(5)).
func (c renewal) watches(number int) (all []programWatch) {
	dir := fmt.Sprintf("/proc/%d", c.tid)
	list, _ := os.ReadDir(dir + "/fd")
	for _, e := range list {
		if to, err := os.Readlink(dir + "/fd/" + e.Name()); err != nil || to != "anon_inode:[eventpoll]" {
			continue
		}
		info, _ := os.ReadFile(dir + "/fdinfo/" + e.Name())
		for line := range bytes.Lines(info) {
			var of int
			var events uint32
			var data uint64
			if n, _ := fmt.Sscanf(string(line), "tfd: %d events: %x data: %x", &of, &events, &data); n != 3 || of != number {
				continue
			}
			n, _ := strconv.Atoi(e.Name())
			if fd, err := c.file(int32(n)); err == nil {
				all = append(all, programWatch{fd, unix.EpollEvent{Events: events, Fd: int32(uint32(data)), Pad: int32(data >> 32)}})
			}
		}
	}
	return all
}

func (c renewal) closesOnExec(number int) bool {
	info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", c.tid, number))
	for line := range bytes.Lines(info) {
		if value, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
			flags, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 8, 64)
			return err == nil && flags&unix.O_CLOEXEC != 0
		}
	}
	return false
}

// rewatch takes old out of epoll instances and adds next with the same events. An entry is of a file and a number, which is the program's: so
// the thread, which ends with the goroutine, has a table of descriptors of its own, in which the numbers are free to be taken.
func rewatch(number, old, next int, watches []programWatch) {
	runtime.LockOSThread() // and no unlocking: the thread is of no other use
	if len(watches) == 0 || unix.Unshare(unix.CLONE_FILES) != nil {
		return
	}
	high := func(fd int) int {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, number+1)
		if err != nil {
			return -1
		}
		return n
	}
	old, next = high(old), high(next)
	for i := range watches {
		w := &watches[i]
		epoll := high(w.epoll)
		if unix.Dup3(old, number, unix.O_CLOEXEC) == nil {
			_ = unix.EpollCtl(epoll, unix.EPOLL_CTL_DEL, number, nil) // it has gone already if no other process has the file
		}
		if unix.Dup3(next, number, unix.O_CLOEXEC) == nil {
			_ = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, number, &w.event) // the instance may have gone
		}
	}
	_ = unix.CloseRange(0, ^uint(0), 0) // before the thread ends, which may take its time
}
