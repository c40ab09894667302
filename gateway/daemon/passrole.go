package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/upgrade"
	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/l4/rolelink"
	"github.com/millrace/millrace/stack"
)

// An upgrade passes the sockets of sync with the offer, and the role with the devices: the new process sends its next message before it
// opens them. So the other gateway hears one gateway all the time, and takes over neither early nor from none.

// passedSync is the part of an offer about the other gateway.
type passedSync struct {
	Index int  `json:"index"`
	Role  bool `json:"role"`
}

// passedRole is the role in the message serve. Now is the reading of the old process's clock at a time of CLOCK_MONOTONIC.
type passedRole struct {
	Saved role.Saved `json:"saved"`
	Now   clock.Time `json:"now"`
	At    int64      `json:"at"`
}

// roleRun is a role that runs, in a process that replaces another one before the rest of it does.
type roleRun struct {
	offset clock.Time // of its clock to that of this process: it goes on with that of the other
	opened atomic.Bool
	until  atomic.Int64 // answers, by the clock of this process

	files map[rolelink.Path]*os.File // sockets of the other process
	sync  net.Listener
	once  sync.Once
	stop  context.CancelFunc
	done  chan struct{}
}

// roles is the role between processes.
type roles struct {
	roleRun
	resume func() // of the exchange of connections, while another process has it
}

func (r *roleRun) now() clock.Time { return stack.Now() + r.offset }

// syncOf describes the other gateway for an offer, nil without one.
func syncOf(c *config.Config) *passedSync {
	if c.Sync == nil {
		return nil
	}
	return &passedSync{Index: c.Sync.Index, Role: c.Sync.Role != nil}
}

// samePlace reports whether the role of one process, if it has one, has its place in another.
func samePlace(was, is *passedSync) bool {
	return was == nil || !was.Role || is != nil && *is == *was
}

// syncSockets returns duplicates of the sockets between the gateways, which the caller closes, and what each is for.
func (d *Daemon) syncSockets() (list []passedSocket, err error) {
	f, err := d.gate.SyncFile()
	if f != nil {
		list = append(list, passedSocket{upgrade.Sync, d.cfg.Sync.Listen.String(), f})
	}
	if err != nil || d.role == nil {
		return list, err
	}
	files, err := d.role.Files()
	for p, f := range files {
		list = append(list, passedSocket{upgrade.Role, p.Listen.String() + " " + p.Peer.String(), f})
	}
	return list, err
}

// passedSocket is a socket of an offer.
type passedSocket struct {
	kind upgrade.Kind
	at   string
	file *os.File
}

// suspendSync ends the exchange with the other gateway, and returns the role for the new process.
func (d *Daemon) suspendSync() (json.RawMessage, error) {
	resume := d.gate.SuspendSync()
	d.roles.resume = resume
	if d.role == nil {
		return nil, nil
	}
	saved := d.role.Suspend()
	return json.Marshal(&passedRole{Saved: saved, Now: d.roles.now(), At: monotonic()})
}

// resumeSync goes on with the other gateway after an upgrade that has failed.
func (d *Daemon) resumeSync() {
	if d.roles.resume == nil {
		return
	}
	if d.role != nil {
		d.role.Resume()
	}
	d.roles.resume()
	d.roles.resume = nil
}

// inheritSync takes the sockets between the gateways of the process that this one replaces. It fails where the role of that has no place
// in the file of this one.
func (d *Daemon) inheritSync(cfg *config.Config) error {
	p, was := d.opt.Predecessor, d.takeover.state.Sync
	if p == nil || was == nil {
		return nil
	}
	if !samePlace(was, syncOf(cfg)) {
		return errors.New("sync.role or sync.index differs from that of the running gateway, and cannot be passed: stop and start instead, which hands over")
	}
	r := &d.roles.roleRun
	r.files = map[rolelink.Path]*os.File{}
	var err error
	p.Take(upgrade.Sync, func(at string, f *os.File) {
		defer f.Close()
		if cfg.Sync == nil || cfg.Sync.Listen.String() != at {
			return // the old process closes it
		}
		l, e := net.FileListener(f)
		r.sync, err = l, errors.Join(err, e)
	})
	p.Take(upgrade.Role, func(at string, f *os.File) {
		listen, peer, _ := strings.Cut(at, " ")
		l, e1 := netip.ParseAddrPort(listen)
		o, e2 := netip.ParseAddrPort(peer)
		err = errors.Join(err, e1, e2)
		r.files[rolelink.Path{Listen: l, Peer: o}] = f
	})
	return err
}

// takeRole goes on with the role of the other process, which has left it. Devices and tables come later.
func (d *Daemon) takeRole(cfg *config.Config) error {
	text := d.takeover.devices.Role
	if len(text) == 0 {
		return nil
	}
	var passed passedRole
	if err := json.Unmarshal(text, &passed); err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	r := &d.roles.roleRun
	r.offset = passed.Now + clock.Time(monotonic()-passed.At) - stack.Now()
	err := d.openRoleAs(cfg, &rolelink.Inherited{Saved: passed.Saved, Files: r.files})
	for _, f := range r.files {
		f.Close()
	}
	if err != nil {
		return err
	}
	d.role.LinkChanged() // sends the first message
	d.startRole()
	return nil
}

// startRole runs the role, once, until endRole.
func (d *Daemon) startRole() {
	r := &d.roles.roleRun
	r.once.Do(func() {
		ctx, stop := context.WithCancel(context.Background())
		r.stop, r.done = stop, make(chan struct{})
		go func() {
			defer close(r.done)
			d.role.Run(ctx)
		}()
	})
}

// endRole ends the role, if it runs.
func (d *Daemon) endRole() {
	r := &d.roles.roleRun
	if r.stop != nil {
		r.stop()
		<-r.done
	}
}

// gateOpened tells the gateway until when it may answer, as the role has it.
func (d *Daemon) gateOpened() {
	if d.role == nil {
		return
	}
	r := &d.roles.roleRun
	r.opened.Store(true)
	d.gate.SetAnswers(clock.Time(r.until.Load()))
	d.role.AddrsChanged()
}

// setAnswers takes until when the role answers for addresses, by its clock. It may run before there is a gateway.
func (d *Daemon) setAnswers(until clock.Time) {
	r := &d.roles.roleRun
	if until != 0 {
		until -= r.offset
	}
	r.until.Store(int64(until))
	if r.opened.Load() {
		d.gate.SetAnswers(clock.Time(r.until.Load()))
	}
}

// errNotOpen is the error of askedLinks before the devices are open.
var errNotOpen = errors.New("the devices are not open yet")

// roleAddrs returns the addresses that the gateway answers for, none before it is open.
func (d *Daemon) roleAddrs() []netip.Addr {
	if !d.roles.opened.Load() {
		return nil
	}
	return slices.Clone(d.gate.Announced())
}

// roleStreams is SyncStreams, also before there is a gateway.
func (d *Daemon) roleStreams() (up, synced bool) {
	if !d.roles.opened.Load() {
		return false, false
	}
	return d.gate.SyncStreams()
}

// roleLinks is linksUp, also before there are devices: those of the other process have had links.
func (d *Daemon) roleLinks() (all, any bool) {
	if !d.roles.opened.Load() {
		return true, true
	}
	return d.linksUp()
}
