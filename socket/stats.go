package socket

import (
	"reflect"
	"strings"
	"unicode"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// Stats returns the counters of the transports, summed over the loops.
func (s *Stack) Stats() (t tcp.Stats, u udp.Stats) {
	_ = s.group.Each(func(_ clock.Time, h *host.Host) error {
		addFields(&t, h.TCP.Stats())
		addFields(&u, h.UDP.Stats())
		return nil
	})
	return t, u
}

// addFields adds the numbers in v, and in arrays in v, to those of sum.
func addFields[T tcp.Stats | udp.Stats](sum *T, v T) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(v)
	for i := range to.NumField() {
		addValue(to.Field(i), from.Field(i))
	}
}

func addValue(to, from reflect.Value) {
	switch {
	case to.Kind() == reflect.Array:
		for i := range to.Len() {
			addValue(to.Index(i), from.Index(i))
		}
	case to.CanUint():
		to.SetUint(to.Uint() + from.Uint())
	default:
		to.SetInt(to.Int() + from.Int())
	}
}

// WriteMetrics writes the counters of the transports: millrace_tcp_retransmits_total for
// tcp.Stats.Retransmits, and so on. Unsigned fields only grow; signed ones are gauges.
func (s *Stack) WriteMetrics(w *metrics.Writer) {
	t, u := s.Stats()
	writeFields(w, "millrace_tcp_", "tcp.Stats.", reflect.ValueOf(t))
	writeFields(w, "millrace_udp_", "udp.Stats.", reflect.ValueOf(u))
}

func writeFields(w *metrics.Writer, prefix, help string, v reflect.Value) {
	for i := range v.NumField() {
		f, field := v.Field(i), v.Type().Field(i).Name
		name := prefix + SnakeCase(field)
		help := "Sum over the loops of " + help + field + "."
		switch {
		case f.Kind() == reflect.Array: // by verdict
			for k := range f.Len() {
				if why := packet.Verdict(k); why.Dropped() {
					w.Counter(name+"_total", help, f.Index(k).Uint(), metrics.Label{Name: "reason", Value: why.String()})
				}
			}
		case f.CanUint():
			w.Counter(name+"_total", help, f.Uint())
		default:
			w.Gauge(name, help, float64(f.Int()))
		}
	}
}

// SnakeCase writes the name of a field as metrics and JSON have it: BytesIn is bytes_in.
func SnakeCase(name string) string {
	var s strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			s.WriteByte('_')
		}
		s.WriteRune(unicode.ToLower(r))
	}
	return s.String()
}

// Process is the process that a socket was opened for, where that is another one than the one the stack runs in. The stack only
// keeps it, for reports.
type Process struct {
	PID     int
	UID     uint32
	Command string // name of the program
	Tier    int    // how it reaches the stack, as the server of its sockets counts
	Seccomp bool   // a supervisor makes its calls
}

// SetProcess sets whose socket it is; nil is the program's own.
func (c *TCPConn) SetProcess(p *Process) {
	c.h.Enter()
	defer c.h.Exit()
	LoopConn{c}.SetProcess(p)
}

// SetProcess is TCPConn.SetProcess for callbacks.
func (in LoopConn) SetProcess(p *Process) {
	if p != nil || in.c.extra != nil {
		in.c.extras().process = p
	}
}

// SetProcess sets whose socket it is, and those of the connections that are accepted from now on; nil is the program's own.
func (l *Listener) SetProcess(p *Process) { l.process.Store(p) }

// Process returns what SetProcess or ListenConfig has set.
func (l *Listener) Process() *Process { return l.process.Load() }

// SetProcess sets whose socket it is; nil is the program's own.
func (c *UDPConn) SetProcess(p *Process) { c.process.Store(p) }

// ProcessOfTCP returns whose socket the owner of a connection is: what SetProcess, the Dialer or the Listener has set; nil for
// the program's own, and for a connection that is closed. The caller holds the loop.
func ProcessOfTCP(o tcp.Owner) *Process {
	if c, ok := o.(*TCPConn); ok && c.extra != nil {
		return c.extra.process
	}
	return nil
}

// ProcessOfUDP is ProcessOfTCP for the owner of a UDP socket.
func ProcessOfUDP(o udp.Owner) *Process {
	if e, ok := o.(*udpShard); ok {
		return e.c.process.Load()
	}
	return nil
}

// Listeners returns the listeners that are open, in no order.
func (s *Stack) Listeners() (all []*Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sockets {
		if l, ok := c.(*Listener); ok {
			all = append(all, l)
		}
	}
	return all
}
