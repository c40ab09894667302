package stackd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/app/service"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/tcp"
)

// listener is a service at its port.
type listener struct {
	Service
	server *service.Server
	serves sync.WaitGroup
}

// openServices starts the services of the configuration.
func (d *Daemon) openServices() error {
	for _, s := range d.cfg.Services {
		if err := d.openService(s); err != nil {
			return err
		}
	}
	return nil
}

// openService starts one service.
func (d *Daemon) openService(s Service) error {
	server, err := service.New(s.Kind, service.Config{Limits: s.Limits, Tune: tune, Inspect: inspect})
	if err != nil {
		return err
	}
	l := &listener{Service: s, server: server}
	d.mu.Lock()
	d.services = append(d.services, l)
	d.mu.Unlock()
	if err := d.listen(l); err != nil {
		return fmt.Errorf("service %s: %w", s.Kind, err)
	}
	d.opt.Log.Info("service", "name", string(s.Kind), "address", l.address(), "protocols", l.protocols())
	return nil
}

// listeners returns the services that are open.
func (d *Daemon) listeners() []*listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.services)
}

// address is where the service is: the address is empty where it is any.
func (l *listener) address() string {
	host := ""
	if l.Address.IsValid() {
		host = l.Address.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(l.Port)))
}

func (l *listener) protocols() string {
	if l.Kind.Datagrams() {
		return "tcp,udp"
	}
	return "tcp"
}

// listen makes the service take connections and datagrams.
func (d *Daemon) listen(l *listener) error {
	stream, err := d.stack.Listen("tcp", l.address())
	if err != nil {
		return err
	}
	d.serve(l, func() error { return l.server.Serve(stream) })
	if !l.Kind.Datagrams() {
		return nil
	}
	datagrams, err := d.stack.ListenPacket("udp", l.address())
	if err != nil {
		return err
	}
	d.serve(l, func() error { return l.server.ServePacket(datagrams) })
	return nil
}

// serve runs a part of a service to its end. An unexpected error is logged.
func (d *Daemon) serve(l *listener, run func() error) {
	l.serves.Go(func() {
		if err := run(); err != nil && !errors.Is(err, service.ErrClosed) && !errors.Is(err, net.ErrClosed) {
			d.opt.Log.Error("service", "name", string(l.Kind), "error", err.Error())
		}
	})
}

// shutdownLimit is the time that services may take to finish what they have begun, and then peers to acknowledge it.
const shutdownLimit = 2 * time.Second

// closeServices ends all services. It may be called twice.
func (d *Daemon) closeServices() { shutdown(d.listeners()) }

// shutdown ends services. Their connections may finish what they have begun within shutdownLimit.
func shutdown(list []*listener) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, l := range list {
		all.Go(func() {
			_ = l.server.Shutdown(ctx) // its error is that time was up
			l.serves.Wait()
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
func (l *listener) at(a netip.AddrPort) bool {
	return l.Port == a.Port() && (!l.Address.IsValid() || l.Address == a.Addr())
}
