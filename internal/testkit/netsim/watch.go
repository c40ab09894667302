package netsim

import (
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// What can happen to a packet.
type What uint8

// Values of What.
const (
	Sent    What = iota // it leaves its sender
	Lost                // a pipe loses it
	Arrived             // it reaches a node, whole
	Refused             // it reaches a node damaged, or is not for it
	Dropped             // the Mux has no use for it
)

// String returns the word that traces use.
func (w What) String() string { return [...]string{"sent", "lost", "arrived", "refused", "dropped"}[w] }

// Event is what happened to a packet, which is borrowed for the call.
type Event struct {
	At     clock.Time
	What   What
	Packet *Packet
	Why    string // for Lost the word of the profile, for Refused and Dropped the verdict
}

// Watch makes f be called for everything that happens to packets.
func (n *Net) Watch(f func(*Event)) { n.watch = append(n.watch, f) }

func (n *Net) report(what What, p *Packet, why string) {
	if len(n.watch) == 0 {
		return
	}
	e := Event{n.now, what, p, why}
	for _, f := range n.watch {
		f(&e)
	}
}

// Trace has a line written to w for all that happens to packets.
func (n *Net) Trace(w io.Writer) {
	n.Watch(func(e *Event) {
		why := e.Why
		if why != "" {
			why = " " + why
		}
		fmt.Fprintf(w, "%11.6f %-7s%s %s\n", e.At.Sub(start).Seconds(), e.What, why, Describe(e.Packet.Bytes))
	})
}

// Describe returns an IP packet with TCP in one line, as tcpdump -S would show it.
func Describe(b []byte) string {
	t, s, ecn, v := Parse(b)
	if v != packet.Deliver {
		return fmt.Sprintf("%d bytes, %v", len(b), v)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%v > %v: %s %d:%d(%d)", port(t.Remote, t.RemotePort), port(t.Local, t.LocalPort), flags(s), s.Seq(), s.Seq()+uint32(len(s.Payload())), len(s.Payload()))
	if s.Flags().Has(wire.FlagACK) {
		fmt.Fprintf(&out, " ack %d", s.Ack())
	}
	fmt.Fprintf(&out, " win %d", s.Window())
	if s.Flags().Has(wire.FlagURG) {
		fmt.Fprintf(&out, " urg %d", s.Urgent())
	}
	var o wire.TCPOptions
	ok := s.ParseOptions(&o)
	describeOptions(&out, &o)
	if !ok {
		out.WriteString(" malformed options")
	}
	if ecn != wire.NotECT {
		fmt.Fprintf(&out, " %v", ecn)
	}
	return out.String()
}

func describeOptions(out *strings.Builder, o *wire.TCPOptions) {
	if o.MSS != 0 {
		fmt.Fprintf(out, " mss %d", o.MSS)
	}
	if o.HasWindowScale {
		fmt.Fprintf(out, " wscale %d", o.WindowScale)
	}
	if o.SACKPermitted {
		out.WriteString(" sackOK")
	}
	if o.HasTimestamps {
		fmt.Fprintf(out, " TS val %d ecr %d", o.TSVal, o.TSEcr)
	}
	for _, b := range o.SACK[:o.SACKs] {
		fmt.Fprintf(out, " sack %d:%d", b.Left, b.Right)
	}
	if o.HasFastOpen {
		fmt.Fprintf(out, " FO %x", o.FastOpen)
	}
	if o.HasMD5 {
		out.WriteString(" md5")
	}
	if o.HasAO {
		out.WriteString(" ao")
	}
}

// flags returns the control bits as single letters.
func flags(s wire.TCP) string {
	letters := []byte{}
	for i, c := range []byte("FSRP.UEW") {
		if s.Flags()&(1<<i) != 0 {
			letters = append(letters, c)
		}
	}
	if s.AE() {
		letters = append(letters, 'A')
	}
	if len(letters) == 0 {
		return "-"
	}
	return string(letters)
}

func port(a wire.Addr, p uint16) string {
	s := a.String()
	return fmt.Sprintf("%s:%d", s[strings.LastIndexAny(s, ".:")+1:], p)
}

// Seconds is a time of the net as traces show it.
func Seconds(t clock.Time) float64 { return t.Sub(start).Seconds() }
