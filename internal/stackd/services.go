package stackd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/millrace/millrace/internal/service"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/tcp"
)

// door is a service at its port.
type door struct {
	Service
	server *service.Server
	serves sync.WaitGroup
}

// openServices starts the services.
func (d *Daemon) openServices() error {
	for _, s := range d.cfg.Services {
		server, err := service.New(s.Kind, service.Config{Limits: s.Limits, Tune: tune, Inspect: inspect})
		if err != nil {
			return err
		}
		dr := &door{Service: s, server: server}
		d.doors = append(d.doors, dr)
		if err := d.openDoor(dr); err != nil {
			return fmt.Errorf("service %s: %w", s.Kind, err)
		}
		d.opt.Log.Info("service", "name", string(s.Kind), "address", dr.address(), "protocols", dr.protocols())
	}
	return nil
}

// address is where the service is: the address is empty where it is any.
func (dr *door) address() string {
	host := ""
	if dr.Address.IsValid() {
		host = dr.Address.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(dr.Port)))
}

func (dr *door) protocols() string {
	if dr.Kind.Datagrams() {
		return "tcp,udp"
	}
	return "tcp"
}

// openDoor has the service take connections and datagrams.
func (d *Daemon) openDoor(dr *door) error {
	l, err := d.stack.Listen("tcp", dr.address())
	if err != nil {
		return err
	}
	d.serve(dr, func() error { return dr.server.Serve(l) })
	if !dr.Kind.Datagrams() {
		return nil
	}
	pc, err := d.stack.ListenPacket("udp", dr.address())
	if err != nil {
		return err
	}
	d.serve(dr, func() error { return dr.server.ServePacket(pc) })
	return nil
}

// serve runs a part of a service to its end, which is told where nobody asked for it.
func (d *Daemon) serve(dr *door, run func() error) {
	dr.serves.Go(func() {
		if err := run(); err != nil && !errors.Is(err, service.ErrClosed) && !errors.Is(err, net.ErrClosed) {
			d.opt.Log.Error("service", "name", string(dr.Kind), "error", err.Error())
		}
	})
}

// closeServices ends the services; connections may finish what they have begun. It may be called twice.
func (d *Daemon) closeServices() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, dr := range d.doors {
		all.Go(func() {
			_ = dr.server.Shutdown(ctx) // its error is that time was up
			dr.serves.Wait()
		})
	}
	all.Wait()
}

// tune sets what a client of iperf3 asks for.
func tune(c net.Conn, o service.Tuning) error {
	t, ok := c.(*socket.TCPConn)
	if !ok {
		return errors.ErrUnsupported
	}
	return t.SetOptions(func(to *tcp.Options) {
		to.NoDelay = to.NoDelay || o.NoDelay
		if o.Congestion != "" {
			to.Congestion = o.Congestion
		}
		if o.Window > 0 {
			to.SendBuffer, to.ReceiveBuffer = o.Window, o.Window
		}
		if o.MSS > 0 {
			to.MSS = o.MSS
		}
	})
}

// inspect tells a client of iperf3 what it reports of a connection.
func inspect(c net.Conn) (service.Inspection, bool) {
	t, ok := c.(*socket.TCPConn)
	if !ok {
		return service.Inspection{}, false
	}
	info, err := t.Info()
	if err != nil {
		return service.Inspection{}, false
	}
	return service.Inspection{Retransmits: info.Retransmits, Congestion: info.Congestion}, true
}

// at reports whether the service is at a local address.
func (dr *door) at(a netip.AddrPort) bool {
	return dr.Port == a.Port() && (!dr.Address.IsValid() || dr.Address == a.Addr())
}
