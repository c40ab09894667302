package stackd

import (
	"context"
	"fmt"
	"net/netip"
	"os/user"
	"strconv"
	"strings"

	"github.com/millrace/millrace/shim"
)

// Shim configures how programs that were compiled for the kernel's sockets use the host (millrace exec).
type Shim struct {
	Socket          string       // key "socket": where they find the host; "auto" (default) is ShimSocket of the control socket, "" is none
	Groups          []string     // key "groups": names or numbers; their members may use the host, besides root and the node's own user
	Everyone        bool         // key "everyone": all users may
	PrivilegedPorts bool         // key "privileged_ports": all of these may bind ports below 1024
	Resolver        []netip.Addr // key "resolver": name servers, asked over the host; none are those of /etc/resolv.conf
	ThroughLoop     bool         // key "through_loop": connections between two programs of the host pass through the loop as TCP
	Sockets         int          // key "sockets": of one user at once; 0 is the default of package shim, as for the others
	Backlog         int          // key "backlog": the most of listen(2)
	Rings           int          // key "rings": connections of one user that have rings (millrace exec --rings)
	Descriptors     int          // key "descriptors": of the host that one user's programs take; 0 is half of what the process may have
	Connects        int          // key "connects": connections that one user begins in a second
}

// autoSocket is the socket beside that of control.
const autoSocket = "auto"

// ShimSocket returns where programs find the host with a control socket, "" for none.
func ShimSocket(control string) string {
	if control == "" {
		return ""
	}
	return strings.TrimSuffix(control, ".sock") + ".shim.sock"
}

// openShim serves programs.
func (d *Daemon) openShim() error {
	c := &d.cfg.Shim
	path := c.Socket
	if path == autoSocket {
		path = ShimSocket(d.cfg.Control.Socket)
	}
	if path == "" {
		return nil
	}
	groups, err := groupIDs(c.Groups)
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	var servers []netip.AddrPort
	for _, a := range c.Resolver {
		servers = append(servers, netip.AddrPortFrom(a, 53))
	}
	r := d.stack.Resolver(servers...)
	s, err := shim.New(shim.Config{
		Stack: d.stack, Path: path, Name: "stack", Groups: groups, Everyone: c.Everyone, PrivilegedPorts: c.PrivilegedPorts,
		ThroughLoop: c.ThroughLoop, Service: d.serviceThatHas,
		Lookup: func(ctx context.Context, name string) ([]netip.Addr, error) { return r.LookupNetIP(ctx, "ip", name) },
		Limits: shim.Limits{Sockets: c.Sockets, Backlog: c.Backlog, Connects: c.Connects, Rings: c.Rings, Descriptors: c.Descriptors},
	})
	if err != nil && c.Socket == autoSocket { // the configuration does not ask for it
		d.opt.Log.Warn("shim", "error", err.Error())
		return nil
	}
	if err == nil {
		d.shim.Store(s)
	}
	return err
}

// groupIDs returns the numbers of groups.
func groupIDs(names []string) (ids []uint32, err error) {
	for _, name := range names {
		text := name
		if g, err := user.LookupGroup(name); err == nil {
			text = g.Gid
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("there is no group %q", name)
		}
		ids = append(ids, uint32(n))
	}
	return ids, nil
}

// closeShim ends what programs have. It may be called twice.
func (d *Daemon) closeShim() error {
	if s := d.shim.Load(); s != nil {
		return s.Close()
	}
	return nil
}

// shimStats returns the counters of the programs; nil where none are served.
func (d *Daemon) shimStats() *ShimStats {
	s := d.shim.Load()
	if s == nil {
		return nil
	}
	st := s.Stats()
	return &ShimStats{Counters: counters(st), Users: st.Users}
}
