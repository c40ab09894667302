package netsim

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// FlowConfig describes a flow: a connection, and the programs at its ends. Bytes and Back are short for
// what From and To send.
type FlowConfig struct {
	From, To *Host
	Start    time.Duration // from now
	Bytes    uint64        // from From to To
	Back     uint64        // from To to From

	Congestion     string      // of both ends, where Options and Accept have none
	Options        tcp.Options // of From
	Accept         tcp.Options // of To
	Client, Server EndConfig

	// Both has both ends connect at the same time, instead of To listening (RFC 9293 3.5).
	Both bool
}

// Flow is a connection between two hosts with a program at each end.
type Flow struct {
	Client, Server *End

	cfg      FlowConfig
	net      *Net
	port     uint16
	listener *tcp.Listener
	began    clock.Time
	err      error
	marks    []mark
}

// mark is how much To had received by some time.
type mark struct {
	at    clock.Time
	bytes uint64
}

// firstPort is that of the first flow.
const firstPort = 5001

// Flow makes a flow, which starts when time passes.
func (n *Net) Flow(cfg FlowConfig) *Flow {
	cfg.Client.Bytes = max(cfg.Client.Bytes, cfg.Bytes)
	cfg.Server.Bytes = max(cfg.Server.Bytes, cfg.Back)
	for _, o := range []*tcp.Options{&cfg.Options, &cfg.Accept} {
		if o.Congestion == "" {
			o.Congestion = cfg.Congestion
		}
	}
	f := &Flow{cfg: cfg, net: n, port: firstPort + n.flows}
	n.flows++
	up, down := stream{mix(n.seed, uint64(f.port))}, stream{mix(n.seed, uint64(f.port)+1<<32)}
	f.Client, f.Server = newEnd(cfg.From, cfg.Client, up, down), newEnd(cfg.To, cfg.Server, down, up)
	f.Server.received = f.received
	n.After(cfg.Start, f.start)
	return f
}

// start opens the connection.
func (f *Flow) start() {
	f.began = f.net.now
	f.Client.readAt, f.Server.readAt = f.began.Add(f.cfg.Client.ReadDelay), f.began.Add(f.cfg.Server.ReadDelay)
	if f.cfg.Both {
		f.connect(f.Server, f.port, f.Client.host.Addr, f.port, &f.cfg.Accept)
		f.connect(f.Client, f.port, f.Server.host.Addr, f.port, &f.cfg.Options)
		return
	}
	var err error
	f.listener, err = f.cfg.To.TCP.Listen(wire.Addr{}, f.port, 16, &f.cfg.Accept, accepter{f})
	if err != nil {
		f.err = fmt.Errorf("listen: %w", err)
		return
	}
	f.connect(f.Client, 0, f.Server.host.Addr, f.port, &f.cfg.Options)
}

func (f *Flow) connect(e *End, local uint16, to wire.Addr, remote uint16, o *tcp.Options) {
	t := wire.Tuple{Local: e.host.Addr, Remote: to, LocalPort: local, RemotePort: remote}
	c, err := e.host.TCP.Connect(f.net.now, t, o, e)
	if err != nil {
		f.err = fmt.Errorf("connect: %w", err)
		return
	}
	e.Conn = c
	e.host.Kick()
}

// accepter owns the listener of a flow.
type accepter struct{ f *Flow }

// Ready implements tcp.Owner.
func (a accepter) Ready(tcp.Events) {
	f := a.f
	for c := f.listener.Accept(); c != nil; c = f.listener.Accept() {
		if f.Server.Conn != nil || f.Server.Ended {
			f.err = errors.New("a second connection came")
			c.Abort(f.net.now)
			continue
		}
		f.Server.Conn = c
		f.Server.Seen |= tcp.Connected
		f.Server.ConnectedAt = f.net.now
		c.SetOwner(f.Server)
	}
}

// received notes how far To is.
func (f *Flow) received(int) {
	if k := len(f.marks); k > 0 && f.net.now.Sub(f.marks[k-1].at) < 10*time.Millisecond {
		return
	}
	f.marks = append(f.marks, mark{f.net.now, f.Server.Received})
}

// Done reports whether both ends gave their connections back.
func (f *Flow) Done() bool { return f.err != nil || f.Client.Ended && f.Server.Ended }

// Err returns what went wrong: a connection that did not end in order, or bytes that were wrong or
// missing. It is nil while the flow goes on.
func (f *Flow) Err() error {
	switch {
	case f.err != nil:
		return f.err
	case f.Client.Err != nil:
		return fmt.Errorf("client: %w", f.Client.Err)
	case f.Server.Err != nil:
		return fmt.Errorf("server: %w", f.Server.Err)
	case !f.Done():
		return nil
	case f.Server.Received != f.Client.Sent:
		return fmt.Errorf("server received %d bytes of %d", f.Server.Received, f.Client.Sent)
	case f.Client.Received != f.Server.Sent:
		return fmt.Errorf("client received %d bytes of %d", f.Client.Received, f.Server.Sent)
	}
	return nil
}

// Took returns the time from the start of a flow that is done to the end of the later end.
func (f *Flow) Took() time.Duration { return max(f.Client.EndedAt, f.Server.EndedAt).Sub(f.began) }

// Goodput returns the payload that To received between two times since the flow began, in bits a
// second.
func (f *Flow) Goodput(from, to time.Duration) float64 {
	d := f.by(to) - f.by(from)
	return float64(d) * 8 / (to - from).Seconds()
}

// by returns how much To had received when d had passed.
func (f *Flow) by(d time.Duration) (bytes uint64) {
	t := f.began.Add(d)
	for _, m := range f.marks {
		if m.at > t {
			return bytes
		}
		bytes = m.bytes
	}
	if f.net.now <= t {
		return f.Server.Received
	}
	return bytes
}

// Close closes the listener.
func (f *Flow) Close() {
	if f.listener != nil {
		f.listener.Close(f.net.now)
		f.listener = nil
		f.cfg.To.Kick()
	}
}
