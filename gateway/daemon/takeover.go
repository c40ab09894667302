package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/defence"
	"github.com/millrace/millrace/gateway/upgrade"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/stack"
)

// passedState is the part of an offer that only gateways understand.
type passedState struct {
	Pools  []l7control.PoolState `json:"pools,omitempty"`
	Secret []byte                `json:"secret,omitempty"` // of QUIC

	Services []l4control.BackendState `json:"services,omitempty"`
	Verdicts []defence.VerdictStatus  `json:"verdicts,omitempty"`
	Sync     *passedSync              `json:"sync,omitempty"`
}

// takeover is the state of a process that replaces another one.
type takeover struct {
	state    passedState
	prepared bool // the other process has been reported to
	devices  upgrade.Suspended
	served   upgrade.Served
}

// readState reads the part of the offer that gateways understand.
func (d *Daemon) readState() error {
	if p := d.opt.Predecessor; p != nil && len(p.State) > 0 {
		if err := json.Unmarshal(p.State, &d.takeover.state); err != nil {
			return fmt.Errorf("upgrade: %w", err)
		}
	}
	return nil
}

// inherit returns the parts for the workers of the process that this one replaces, nil if it replaces none.
func (d *Daemon) inherit() (in *l7control.Inherited, err error) {
	p, st := d.opt.Predecessor, &d.takeover.state
	if p == nil {
		return nil, nil
	}
	in = &l7control.Inherited{Locks: map[string]*os.File{}, Pools: st.Pools}
	p.Take(upgrade.TCP, func(_ string, f *os.File) { in.Sockets = append(in.Sockets, f) })
	in.Generation, in.Secret = p.Generation, st.Secret
	udp := func(at string, relay int, f *os.File) {
		a, e := netip.ParseAddrPort(at)
		err = errors.Join(err, e)
		in.UDP = append(in.UDP, quicconn.File{At: a, Relay: relay, File: f})
	}
	p.Take(upgrade.UDP, func(at string, f *os.File) { udp(at, -1, f) })
	p.Take(upgrade.Relay, func(text string, f *os.File) {
		number, at, _ := strings.Cut(text, " ")
		n, e := strconv.ParseUint(number, 10, 8)
		err = errors.Join(err, e)
		udp(at, int(n), f)
	})
	p.Take(upgrade.Folder, func(at string, f *os.File) { in.Locks[at] = f })
	return in, err
}

// inheritedSockets returns the sockets for the node.
func (d *Daemon) inheritedSockets() (list []node.Socket) {
	for kind, as := range socketKinds {
		d.opt.Predecessor.Take(kind, func(at string, f *os.File) { list = append(list, node.Socket{Kind: as, At: at, File: f}) })
	}
	return list
}

var socketKinds = map[upgrade.Kind]node.SocketKind{upgrade.Control: node.ControlSocket, upgrade.Metrics: node.MetricsSocket, upgrade.Pages: node.PagesSocket}

// beforeDevices opens all that needs no device, reports that to the other process, and returns when that has closed the devices. So they
// are without a process for as short as can be, and what fails before costs nothing.
func (d *Daemon) beforeDevices(cfg *config.Config) error {
	if d.opt.Predecessor == nil || d.takeover.prepared {
		return nil
	}
	if cfg.Stack != config.StackDevices {
		if err := d.openWorkers(cfg); err != nil {
			return err
		}
	}
	if err := d.inheritSync(cfg); err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	return d.takeRole(cfg)
}

// prepare reports to the other process, once.
func (d *Daemon) prepare() (err error) {
	p, t := d.opt.Predecessor, &d.takeover
	if p == nil || t.prepared {
		return nil
	}
	t.prepared = true
	if err := d.takeSessions(); err != nil {
		return err
	}
	var left []string
	if d.workers != nil {
		for _, at := range l7control.Prepared(d.workers) {
			left = append(left, at.String())
		}
	} else {
		p.Take(upgrade.UDP, func(at string, f *os.File) {
			left = append(left, at)
			f.Close()
		})
	}
	if t.devices, err = p.Prepared(d.opt.Build.Version, left); err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	if d.workers != nil {
		l7control.Take(d.workers)
	}
	return nil
}

// inheritConnections enters the connections of the other process, and what an operator had set of services.
func (d *Daemon) inheritConnections() error {
	t := &d.takeover
	err := l4control.Restore(d.gate, t.state.Services)
	if t.devices.Table == nil {
		return err
	}
	defer t.devices.Table.Close()
	table, e := io.ReadAll(t.devices.Table)
	if err := errors.Join(err, e); err != nil {
		return err
	}
	t.served.Entered, t.served.Lost, err = l4control.ImportTable(d.gate, stack.Now(), table)
	return err
}

// inheritVerdicts enters the verdicts of the other process's defence. One that has no room is logged.
func (d *Daemon) inheritVerdicts() {
	if d.defence == nil {
		return
	}
	for _, v := range d.takeover.state.Verdicts {
		left := time.Duration(v.Left * float64(time.Second))
		err := d.defence.Add(defence.Verdict{Source: v.Source, Rate: v.Packets, Rule: v.Rule, For: left}, left == 0)
		if err != nil {
			d.opt.Log.Warn("defence", "source", v.Source.String(), "error", err.Error())
		}
	}
}

// takeOver reports to the other process that all is open, or why it is not.
func (d *Daemon) takeOver(err error) error {
	p := d.opt.Predecessor
	switch {
	case p == nil:
		return err
	case err != nil:
		p.Refuse(err, codeOf(err))
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	if t := &d.takeover; t.devices.At != 0 {
		t.served.Gap = time.Duration(monotonic() - t.devices.At)
		d.opt.Log.Info("upgrade", "state", "has the devices", "after", t.served.Gap.String(), "connections", t.served.Entered, "lost", fmt.Sprint(t.served.Lost))
	}
	return nil
}

// serving reports that this process serves, and makes the sockets its own once the other has left them.
func (d *Daemon) serving() {
	if d.opt.Predecessor == nil {
		return
	}
	if d.workers != nil {
		l7control.Await(d.workers)
	}
	d.opt.Predecessor.Serving(d.takeover.served)
	if err := d.node.OwnSockets(); err != nil {
		d.opt.Log.Warn("upgrade", "error", err.Error())
	}
	d.opt.Predecessor.Close()
}
