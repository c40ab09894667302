package daemon

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/upgrade"
	"github.com/millrace/millrace/internal/controlsocket"
	"github.com/millrace/millrace/internal/devargs"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/stack"
)

// Limits of an upgrade: a new process that does not keep them is ended, and this one goes on.
const (
	preparedLimit = time.Minute      // reads its file and opens what it names
	servingLimit  = 10 * time.Second // runs its loops
	trialTime     = time.Second      // has it serve before this process leaves the sockets to it
)

// upgrading is the state of upgrades of a process.
type upgrading struct {
	one        sync.Mutex // is held by an upgrade
	started    string     // path of this program as it was at the start
	previous   *upgrade.Program
	executable *os.File // of previous
	replaced   atomic.Bool
	generation uint8

	ctx  context.Context // ends with the process
	stop context.CancelCauseFunc
}

// Errors of upgrades.
var (
	errUpgrading  = errors.New("another upgrade is under way: wait for its end")
	errReplaced   = errors.New("another process has replaced this one, which only finishes its connections")
	errFirst      = errors.New("the gateway is process 1 of its PID namespace, such as a container, which would end with it: run it under an init (docker run --init), or start another container")
	errNoPrevious = errors.New("there is nothing to return to: this process has replaced no other")
	errStopping   = errors.New("the gateway stops")
	errNoProgram  = errors.New("this gateway was not started by a command line with a configuration file")
)

// open prepares upgrades of this process, which may replace another one.
func (u *upgrading) open(p *upgrade.Predecessor) {
	u.ctx, u.stop = context.WithCancelCause(context.Background())
	if path, err := os.Executable(); err == nil {
		u.started = strings.TrimSuffix(path, " (deleted)")
	}
	if p != nil {
		previous, executable := p.Previous()
		u.previous, u.executable, u.generation = &previous, executable, p.Generation
	}
}

func (u *upgrading) close() {
	if u.executable != nil {
		u.executable.Close()
	}
}

// Replaced reports whether another process has replaced this one.
func (d *Daemon) Replaced() bool { return d.upgrading.replaced.Load() }

// serveUpgrade serves a request for an upgrade.
func (d *Daemon) serveUpgrade(c *controlsocket.Commands, r *http.Request) (any, error) {
	var req admin.Upgrade
	if err := body(r, &req); err != nil {
		return nil, err
	}
	if req.Drain < 0 {
		return nil, badRequest("drain is %v; it must not be negative", time.Duration(req.Drain))
	}
	if req.Rollback && (req.Binary != "" || req.Config != "" || req.IfNeeded) {
		return nil, badRequest("a rollback returns to the program and the file of before: name no others")
	}
	res, err := d.Upgrade(&req)
	if res.Reloaded {
		c.Record("reload", err, LogChanges(&res.Changes)...)
	} else {
		c.Record("upgrade", err, "pid", res.PID, "version", res.Version, "drain", time.Duration(res.Drain).String())
	}
	return res, err
}

// Upgrade starts another process in place of this one. Where it returns nil and has not just reloaded, Run ends once the connections
// of this process have; on an error this process goes on.
func (d *Daemon) Upgrade(req *admin.Upgrade) (res admin.Upgraded, err error) {
	u := &d.upgrading
	if !u.one.TryLock() {
		return res, conflict(errUpgrading)
	}
	defer u.one.Unlock()
	if req.IfNeeded {
		if needed, err := d.needsUpgrade(req); err != nil || !needed {
			if err == nil {
				res.Changes, err = d.Reload()
			}
			res.Reloaded = true
			return res, err
		}
	}
	d.reloading.Lock()
	defer d.reloading.Unlock()
	program, executable, err := d.successor(req)
	if err != nil {
		return res, conflict(err)
	}
	d.notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", monotonic()/1000))
	res, err = d.replace(program, executable)
	if err != nil {
		d.notify("READY=1")
		return res, failedUpgrade(err)
	}
	u.replaced.Store(true)
	d.notify(fmt.Sprintf("MAINPID=%d\nREADY=1", res.PID))
	res.Drain = admin.Duration(d.drainAll(time.Duration(req.Drain)))
	d.node.LeaveSockets()
	d.Stop()
	return res, nil
}

// drainAll sets how long the connections of this process may go on; 0 leaves it to the listeners.
func (d *Daemon) drainAll(most time.Duration) time.Duration {
	if d.workers == nil {
		return 0
	}
	l7control.Give(d.workers)
	l7control.DrainFor(d.workers, most)
	return d.workers.ShutdownLimit()
}

// needsUpgrade reports whether a reload does not suffice: the program is another one, or the file has keys that a reload refuses. The
// error is one of the file.
func (d *Daemon) needsUpgrade(req *admin.Upgrade) (bool, error) {
	if req.Config != "" && !sameFile(req.Config, d.file) || !sameFile(cmp.Or(req.Binary, d.upgrading.started), "/proc/self/exe") {
		return true, nil
	}
	d.reloading.Lock()
	defer d.reloading.Unlock()
	cfg, err := d.load()
	if err != nil {
		return false, err
	}
	return config.NeedsRestart(d.cfg, cfg) != "", nil
}

// sameFile reports whether two paths are of one file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	other, err2 := os.Stat(b)
	return errors.Join(err, err2) == nil && os.SameFile(one, other)
}

// successor returns the program that a request is for, with a descriptor of its executable where its path may have another one.
func (d *Daemon) successor(req *admin.Upgrade) (p upgrade.Program, executable *os.File, err error) {
	switch u := &d.upgrading; {
	case d.opt.Program == nil:
		return p, nil, errNoProgram
	case u.replaced.Load():
		return p, nil, errReplaced
	case os.Getpid() == 1:
		return p, nil, errFirst
	case req.Rollback && u.previous == nil:
		return p, nil, errNoPrevious
	}
	if err := d.passable(); err != nil {
		return p, nil, err
	}
	if req.Rollback {
		return *d.upgrading.previous, d.upgrading.executable, nil
	}
	for _, path := range []string{req.Binary, req.Config} {
		if path != "" && !filepath.IsAbs(path) {
			return p, nil, fmt.Errorf("%s is no absolute path: the gateway has a working directory of its own", path)
		}
	}
	p = d.opt.Program(req.Config)
	p.Path = cmp.Or(req.Binary, d.upgrading.started)
	return p, nil, nil
}

// passable returns an error that names what cannot be passed to another process.
func (d *Daemon) passable() error {
	c := d.cfg
	switch {
	case c.Stack == config.StackDevices:
		return errors.New("stack: devices: the connections of listeners are in this process, and cannot be passed: stop and start instead")
	case d.flows.table != nil:
		return errors.New("kernel_flows: connections in the kernel cannot be passed to another process yet: stop and start instead")
	}
	for i := range c.Devices {
		dev := &c.Devices[i]
		if dev.Driver == string(device.TAP) {
			return fmt.Errorf("device %s: a TAP device ends with its process: stop and start instead", dev.Name)
		}
		if devargs.IsSocket(dev.Name) {
			return fmt.Errorf("device %s: the other end is connected to this process: stop and start instead", dev.Name)
		}
		if devargs.IsDPDK(dev.Name) {
			return fmt.Errorf("device %s: DPDK lets one process have a device: stop and start instead", dev.Name)
		}
	}
	return nil
}

// replace starts a program and passes the sockets to it. It returns when that has served for a while. On an error the program has
// ended, and this process accepts again.
func (d *Daemon) replace(p upgrade.Program, executable *os.File) (res admin.Upgraded, err error) {
	d.opt.Log.Info("upgrade", "state", "starts", "program", p.Path, "arguments", strings.Join(p.Args, " "))
	s, err := upgrade.Start(p, executable)
	if err != nil {
		return res, err
	}
	build, served, err := d.hand(s)
	if err != nil {
		s.Abandon()
		d.resumeSync()
		d.resumeBGP()
		d.node.ResumeDevices()
		if d.defence != nil {
			d.defence.Resume()
		}
		d.holdAccept(false, nil)
		return res, cmp.Or(context.Cause(d.upgrading.ctx), err)
	}
	return admin.Upgraded{PID: s.PID(), Version: build, Gap: admin.Duration(served.Gap), Connections: served.Entered, Lost: served.Lost}, nil
}

// hand has a process take over.
func (d *Daemon) hand(s *upgrade.Successor) (build string, served upgrade.Served, err error) {
	ctx := d.upgrading.ctx
	var left []string
	if err = d.pass(s); err == nil {
		build, left, err = s.Prepared(ctx, preparedLimit)
	}
	if err != nil {
		return "", served, err
	}
	d.holdAccept(true, left)
	devices, err := d.suspend()
	if devices.Table != nil {
		defer devices.Table.Close()
	}
	if err == nil {
		served, err = s.Serve(ctx, servingLimit, devices)
	}
	if err == nil {
		err = s.Watch(ctx, trialTime)
	}
	if err == nil {
		err = s.Commit()
	}
	return build, served, err
}

// suspend closes the devices for the new process, takes the defence off, and returns the table of connections. There is none without
// devices.
func (d *Daemon) suspend() (s upgrade.Suspended, err error) {
	if s.Sessions, err = d.suspendBGP(); err != nil || len(d.cfg.Devices) == 0 && d.defence == nil {
		return s, err
	}
	s.At = monotonic()
	if d.defence != nil {
		err = d.defence.Suspend()
	}
	if len(d.cfg.Devices) == 0 || err != nil {
		return s, err
	}
	if err := d.node.SuspendDevices(); err != nil {
		return s, err
	}
	if s.Table, err = upgrade.MemoryFile("connections"); err != nil {
		return s, err
	}
	w := bufio.NewWriterSize(s.Table, 1<<20)
	if _, err = l4control.WriteTable(d.gate, stack.Now(), d.node.OnLoop, w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		_, err = s.Table.Seek(0, io.SeekStart)
	}
	if err == nil { // last: the other gateway must not wait for a message
		s.Role, err = d.suspendSync()
	}
	return s, err
}

// holdAccept stops accepting at all listening sockets, or goes on. UDP sockets at some addresses stay with this process.
func (d *Daemon) holdAccept(hold bool, left []string) {
	var except []netip.AddrPort
	for _, text := range left {
		if at, err := netip.ParseAddrPort(text); err == nil {
			except = append(except, at)
		}
	}
	if d.workers != nil {
		l7control.HoldAccept(d.workers, hold, except)
	}
	d.node.HoldAccept(hold)
}

// pass sends the offer with the sockets.
func (d *Daemon) pass(s *upgrade.Successor) error {
	in, err := &l7control.Inherited{Generation: d.upgrading.generation + 1}, error(nil)
	if d.workers != nil {
		in, err = l7control.Pass(d.workers)
	}
	sockets, e := d.node.Sockets()
	defer closePassed(in, sockets)
	sessions, e2 := d.bgpSockets()
	between, e3 := d.syncSockets()
	defer func() {
		for _, s := range sessions {
			s.File.Close()
		}
		for _, s := range between {
			s.file.Close()
		}
	}()
	if err := errors.Join(err, e, e2, e3); err != nil {
		return err
	}
	st := passedState{Pools: in.Pools, Secret: in.Secret, Services: l4control.BackendStates(d.gate), Sync: syncOf(d.cfg)}
	if d.defence != nil {
		list, err := d.defence.Status()
		if err != nil {
			return err
		}
		st.Verdicts = list.Verdicts
	}
	state, err := json.Marshal(&st)
	if err != nil {
		return err
	}
	exe, err := upgrade.Executable()
	if err != nil {
		return err
	}
	defer exe.Close()
	own := d.opt.Program("")
	own.Path = d.upgrading.started
	o := &upgrade.Offer{Build: d.opt.Build.Version, Generation: in.Generation, Program: own, State: state}
	return s.Offer(o, exe, func(socket func(upgrade.Kind, string, ...*os.File) error) error {
		errs := []error{socket(upgrade.TCP, "", in.Sockets...)}
		for _, f := range in.UDP {
			if f.Relay < 0 {
				errs = append(errs, socket(upgrade.UDP, f.At.String(), f.File))
			} else {
				errs = append(errs, socket(upgrade.Relay, fmt.Sprintf("%d %s", f.Relay, f.At), f.File))
			}
		}
		for _, one := range sessions {
			errs = append(errs, socket(upgrade.Session, one.String(), one.File))
		}
		for _, one := range between {
			errs = append(errs, socket(one.kind, one.at, one.file))
		}
		for dir, f := range in.Locks {
			errs = append(errs, socket(upgrade.Folder, dir, f))
		}
		for kind, as := range socketKinds {
			for _, one := range sockets {
				if one.Kind == as {
					errs = append(errs, socket(kind, one.At, one.File))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// closePassed closes the duplicates that were sent.
func closePassed(in *l7control.Inherited, sockets []node.Socket) {
	for _, f := range in.Sockets {
		f.Close()
	}
	for _, f := range in.UDP {
		f.File.Close()
	}
	for _, f := range in.Locks {
		f.Close()
	}
	for _, s := range sockets {
		s.File.Close()
	}
}

// notify reports a state to the service manager. The gateway serves also where that fails.
func (d *Daemon) notify(state string) {
	if d.opt.Notify == nil {
		return
	}
	if err := d.opt.Notify(state); err != nil {
		d.opt.Log.Warn("upgrade", "error", err.Error())
	}
}

// monotonic returns the time of CLOCK_MONOTONIC in nanoseconds, which processes have in common.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// conflict returns an error with status 409.
func conflict(err error) error {
	return &controlsocket.Error{Message: err.Error(), Code: http.StatusConflict}
}

// failedUpgrade returns the error of an upgrade with its status: that which the new process has chosen, or 500.
func failedUpgrade(err error) error {
	e := &controlsocket.Error{Message: "this gateway goes on: " + err.Error(), Code: http.StatusInternalServerError}
	if r := new(upgrade.Refused); errors.As(err, &r) {
		if e.Code = r.Code; r.Code == http.StatusUnprocessableEntity {
			e.Message = r.Message // the errors of a file
		}
	}
	return e
}
