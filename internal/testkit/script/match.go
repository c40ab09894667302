package script

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// sent is a segment that the Mux has sent.
type sent struct {
	at  clock.Time
	seg wire.TCP
	ecn wire.ECN
	tos uint8 // DSCP and ECN
}

// translation maps what a script says to what is on the wire.
type translation struct {
	iss      uint32 // local initial sequence number: what the script calls 0
	hasISS   bool
	synAck   uint32 // what the last SYN-ACK acknowledged
	answered bool   // there was one
	ts       uint32 // is added to the script's local timestamps
	hasTS    bool
	upstream bool
	peerISS  uint32
	leniency
}

// encode returns the options of a segment that arrives; ts is added to the timestamps that it echoes.
func (k *Packet) encode(ts uint32) (b []byte) {
	for _, o := range k.Options {
		switch o.Kind {
		case wire.OptionNOP, wire.OptionEnd:
			b = append(b, o.Kind)
		case wire.TCPOptMSS:
			b = wire.AppendMSS(b, uint16(o.Value))
		case wire.TCPOptWindowScale:
			b = wire.AppendWindowScale(b, uint8(o.Value))
		case wire.TCPOptSACKPermitted:
			b = wire.AppendSACKPermitted(b)
		case wire.TCPOptTimestamps:
			echo := o.Echo
			if echo != 0 {
				echo += ts
			}
			b = wire.AppendTimestamps(b, o.Value, echo)
		case wire.TCPOptSACK:
			if len(o.Blocks) > 0 {
				b = wire.AppendSACK(b, o.Blocks...)
				continue
			}
			fallthrough
		default:
			b = append(append(b, o.Kind, uint8(2+len(o.Data))), o.Data...)
		}
	}
	return b
}

// shift returns the packet's options with the peer's view of local sequence numbers, since SACK blocks that
// arrive are about what we sent, and with the cookie that it was given.
func (k *Packet) shift(iss uint32, cookie []byte) *Packet {
	c := *k
	c.Options = slices.Clone(k.Options)
	for i := range c.Options {
		blocks := slices.Clone(c.Options[i].Blocks)
		for j := range blocks {
			blocks[j].Left += iss
			blocks[j].Right += iss
		}
		c.Options[i].Blocks = blocks
		if c.Options[i].Last {
			c.Options[i].Data = cookie
		}
	}
	return &c
}

// compare returns what differs between a segment that was sent and the one that was expected; ""
// where nothing does. Local timestamps may be early or late by slack.
func (tr *translation) compare(k *Packet, g *sent, slack uint32) string {
	s := g.seg
	syn := s.Flags().Has(wire.FlagSYN)
	if syn && k.Flags.Has(wire.FlagSYN) {
		tr.begin(k, s)
	}
	peer := tr.peer()
	if syn {
		peer = 0
	}
	switch {
	case (s.Flags()^k.Flags)&^tr.ignored() != 0 || s.AE() != k.AE:
		return fmt.Sprintf("flags are %s, not %s", flagString(s.Flags(), s.AE()), flagString(k.Flags, k.AE))
	case s.Seq()-tr.iss != k.Seq && tr.hasISS && !(tr.upstream && syn):
		return fmt.Sprintf("sequence number is %d, not %d", s.Seq()-tr.iss, k.Seq)
	case uint32(len(s.Payload())) != k.Len:
		return fmt.Sprintf("payload is %d bytes, not %d", len(s.Payload()), k.Len)
	case k.Flags.Has(wire.FlagACK) && s.Ack()-peer != k.Ack:
		return fmt.Sprintf("ack is %d, not %d", s.Ack()-peer, k.Ack)
	case k.HasWindow && s.Window() != k.Window && !(tr.upstream && k.Window != 0 && s.Window() != 0):
		return fmt.Sprintf("win is %d, not %d", s.Window(), k.Window)
	case k.HasUrgent && s.Urgent() != k.Urgent:
		return fmt.Sprintf("urg is %d, not %d", s.Urgent(), k.Urgent)
	case k.HasECN && g.ecn != k.ECN && !tr.mayBeUnmarked(k, g):
		return fmt.Sprintf("ECN is %v, not %v", g.ecn, k.ECN)
	case k.HasTOS && g.tos != k.TOS:
		return fmt.Sprintf("TOS is %#x, not %#x", g.tos, k.TOS)
	}
	first := s.Seq() - tr.iss
	if s.Flags().Has(wire.FlagSYN) {
		first++ // the SYN has the number before (RFC 9293 3.4)
	}
	if i := mismatch(s.Payload(), first); i >= 0 {
		return fmt.Sprintf("byte %d of the payload is wrong", i)
	}
	tr.sentTo = max(tr.sentTo, first+uint32(len(s.Payload())))
	if k.AnyOptions {
		return ""
	}
	return tr.compareOptions(k, s, slack)
}

// forget has the next SYN begin another connection, whose numbers are its own.
func (tr *translation) forget() {
	*tr = translation{upstream: tr.upstream, leniency: tr.leniency}
	tr.begun()
}

// ignored are the flags that may differ: when PSH is set is for the sender to say (RFC 9293 3.9.1.2).
func (tr *translation) ignored() wire.TCPFlags {
	if tr.upstream {
		return wire.FlagPSH
	}
	return 0
}

// peer is what the script's numbers for the peer's bytes count from.
func (tr *translation) peer() uint32 {
	if tr.upstream {
		return tr.peerISS
	}
	return 0
}

// begin learns from a SYN, or from a SYN-ACK that answers another SYN than the one before, what the local
// initial sequence number is.
func (tr *translation) begin(k *Packet, s wire.TCP) {
	answer := s.Flags().Has(wire.FlagACK)
	if !tr.hasISS || answer && tr.answered && s.Ack() != tr.synAck {
		if tr.iss, tr.hasISS = s.Seq()-k.Seq, true; tr.upstream {
			tr.iss = s.Seq()
		}
		tr.begun()
	}
	if answer {
		tr.answered, tr.synAck = true, s.Ack()
	}
}

// compareOptions does so for options, in any order and without padding.
func (tr *translation) compareOptions(k *Packet, s wire.TCP, slack uint32) string {
	have, ok := decode(s)
	if !ok {
		return "options are malformed"
	}
	want := slices.DeleteFunc(slices.Clone(k.Options), padding)
	if tr.upstream {
		var diff string
		if have, want, diff = tr.compareAccECN(have, want); diff != "" {
			return diff
		}
	}
	if len(have) != len(want) {
		return fmt.Sprintf("options are %s, not %s", optionString(have), optionString(want))
	}
	for _, w := range want {
		i := slices.IndexFunc(have, func(h Option) bool { return h.Kind == w.Kind })
		if i < 0 || !tr.same(&w, &have[i], slack) {
			return fmt.Sprintf("options are %s, not %s", optionString(have), optionString(want))
		}
	}
	return ""
}

func padding(o Option) bool { return o.Kind == wire.OptionNOP || o.Kind == wire.OptionEnd }

// same reports whether option h of a segment is what w says.
func (tr *translation) same(w, h *Option, slack uint32) bool {
	switch {
	case w.Kind == wire.TCPOptWindowScale && tr.upstream:
		return true
	case w.Kind == wire.TCPOptFastOpen && (tr.upstream || w.Last):
		return (len(w.Data) > 0 || w.Last) == (len(h.Data) > 0)
	case w.Kind != wire.TCPOptTimestamps:
		return w.Value == h.Value && slices.Equal(w.Blocks, tr.relative(h.Blocks)) && slices.Equal(w.Data, h.Data)
	}
	if !tr.hasTS || tr.upstream && !tr.exactTimes {
		tr.ts, tr.hasTS = h.Value-w.Value, true
	}
	off := int32(h.Value - tr.ts - w.Value)
	h.Value -= tr.ts
	return off >= -int32(slack) && off <= int32(slack) && w.Echo == h.Echo
}

// relative returns blocks of what we received as the script counts them.
func (tr *translation) relative(blocks []wire.SACKBlock) []wire.SACKBlock {
	if tr.peer() == 0 {
		return blocks
	}
	out := slices.Clone(blocks)
	for i := range out {
		out[i].Left -= tr.peer()
		out[i].Right -= tr.peer()
	}
	return out
}

// decode returns the options of a segment without padding.
func decode(s wire.TCP) (list []Option, ok bool) {
	it := s.OptionIter()
	for it.Next() {
		o := Option{Kind: it.Kind(), Data: it.Data()}
		if padding(o) {
			continue
		}
		d := o.Data
		switch {
		case o.Kind == wire.TCPOptMSS && len(d) == 2:
			o.Value, o.Data = uint32(d[0])<<8|uint32(d[1]), nil
		case o.Kind == wire.TCPOptWindowScale && len(d) == 1:
			o.Value, o.Data = uint32(d[0]), nil
		case o.Kind == wire.TCPOptTimestamps && len(d) == 8:
			o.Value, o.Echo, o.Data = be32(d), be32(d[4:]), nil
		case o.Kind == wire.TCPOptSACK && len(d)%8 == 0:
			for ; len(d) > 0; d = d[8:] {
				o.Blocks = append(o.Blocks, wire.SACKBlock{Left: be32(d), Right: be32(d[4:])})
			}
			o.Data = nil
		}
		list = append(list, o)
	}
	return list, !it.Malformed()
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// describe returns a segment as scripts write it.
func (tr *translation) describe(g *sent) string {
	s := g.seg
	seq := s.Seq() - tr.iss
	var b strings.Builder
	if g.ecn != wire.NotECT {
		fmt.Fprintf(&b, "[%s] ", strings.ToLower(strings.NewReplacer("(", "", ")", "").Replace(g.ecn.String())))
	}
	fmt.Fprintf(&b, "%s %d:%d(%d)", flagString(s.Flags(), s.AE()), seq, seq+uint32(len(s.Payload())), len(s.Payload()))
	if s.Flags().Has(wire.FlagACK) {
		fmt.Fprintf(&b, " ack %d", s.Ack())
	}
	fmt.Fprintf(&b, " win %d", s.Window())
	if s.Flags().Has(wire.FlagURG) {
		fmt.Fprintf(&b, " urg %d", s.Urgent())
	}
	list, _ := decode(s)
	for i := range list {
		if list[i].Kind == wire.TCPOptTimestamps {
			list[i].Value -= tr.ts
		}
	}
	if len(list) > 0 {
		b.WriteString(" " + optionString(list))
	}
	return b.String()
}

func flagString(f wire.TCPFlags, ae bool) string {
	var b []byte
	for i, c := range []byte("FSRP.UEW") {
		if f&(1<<i) != 0 {
			b = append(b, c)
		}
	}
	if ae {
		b = append(b, 'A')
	}
	if len(b) == 0 {
		return "-"
	}
	return string(b)
}

func optionString(list []Option) string {
	words := make([]string, len(list))
	for i, o := range list {
		words[i] = o.String()
	}
	return "<" + strings.Join(words, ",") + ">"
}

// String returns the option as scripts write it.
func (o Option) String() string {
	switch o.Kind {
	case wire.OptionNOP:
		return "nop"
	case wire.OptionEnd:
		return "eol"
	case wire.TCPOptMSS:
		return fmt.Sprintf("mss %d", o.Value)
	case wire.TCPOptWindowScale:
		return fmt.Sprintf("wscale %d", o.Value)
	case wire.TCPOptSACKPermitted:
		return "sackOK"
	case wire.TCPOptTimestamps:
		return fmt.Sprintf("TS val %d ecr %d", o.Value, o.Echo)
	case wire.TCPOptSACK:
		s := "sack"
		for _, b := range o.Blocks {
			s += fmt.Sprintf(" %d:%d", b.Left, b.Right)
		}
		return s
	case wire.TCPOptAccECN0, wire.TCPOptAccECN1:
		return o.accECNString()
	case wire.TCPOptFastOpen:
		return strings.TrimSpace("FO " + hex.EncodeToString(o.Data))
	}
	return strings.TrimSpace(fmt.Sprintf("opt %d %s", o.Kind, hex.EncodeToString(o.Data)))
}

func (o Option) accECNString() string {
	names := [3]string{"e0b", "ceb", "e1b"}
	if o.Kind == wire.TCPOptAccECN1 {
		names = [3]string{"e1b", "ceb", "e0b"}
	}
	s := "ECN"
	for i, d := 0, o.Data; len(d) >= 3 && i < 3; i, d = i+1, d[3:] {
		s += fmt.Sprintf(" %s %d", names[i], uint32(d[0])<<16|uint32(d[1])<<8|uint32(d[2]))
	}
	return s
}

// pattern is the byte at sequence number seq of a direction, counted from the SYN.
func pattern(seq uint32) byte { return byte(seq*167>>3) ^ byte(seq) }

func fill(b []byte, seq uint32) {
	for i := range b {
		b[i] = pattern(seq + uint32(i))
	}
}

// mismatch returns the index of the first byte that is not the pattern's, -1 where all are.
func mismatch(b []byte, seq uint32) int {
	for i, c := range b {
		if c != pattern(seq+uint32(i)) {
			return i
		}
	}
	return -1
}
