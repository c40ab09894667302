package script

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// names are what an expression may be about.
type names map[string]float64

// expr is one assertion.
type expr struct {
	pos  Pos
	text string
	eval func(names) (float64, error)
}

// exprs parses the code of an assertion: the grammar of Python's expressions, as far as numbers go.
type exprs struct {
	p    *parser
	text string // the whole
}

// assertion reads what is between %{ and }%: lines that say "assert EXPR" or "assert EXPR, MESSAGE".
func (p *parser) assertion() *Assertion {
	pos := p.tok.pos
	inner := &parser{x: lexer{name: p.x.name, text: p.tok.text, pos: Pos{pos.Line, pos.Column + 2}}}
	x := exprs{p: inner, text: p.tok.text}
	p.advance()
	inner.advance()
	a := &Assertion{}
	for inner.err == nil && inner.tok.kind != tokEnd {
		a.Tests = append(a.Tests, x.statement())
	}
	if len(a.Tests) == 0 {
		inner.fail(pos, "nothing is asserted")
	}
	if inner.err != nil && p.err == nil {
		p.err = inner.err
		p.tok = token{pos: pos}
	}
	return a
}

// statement reads one assertion.
func (x *exprs) statement() expr {
	p := x.p
	e := expr{pos: p.tok.pos}
	p.want("assert")
	from := p.x.at - len(p.tok.text)
	e.eval = x.or(0)
	to := p.x.at - len(p.tok.text)
	if p.tok.kind == tokString {
		to -= 2
	}
	if from >= 0 && to >= from && to <= len(x.text) {
		e.text = strings.TrimSpace(x.text[from:to])
	}
	if p.accept(",") { // what Python would print
		for p.err == nil && p.tok.kind != tokEnd && !p.tok.first && !p.is(";") {
			p.advance()
		}
	}
	if !p.accept(";") && !p.tok.first && p.tok.kind != tokEnd {
		p.fail(p.tok.pos, "want the end of the assertion, have %s", p.tok)
	}
	return e
}

type evaluator = func(names) (float64, error)

// both evaluates two operands.
func both(a, b evaluator, f func(a, b float64) (float64, error)) evaluator {
	return func(n names) (float64, error) {
		x, err := a(n)
		if err != nil {
			return 0, err
		}
		y, err := b(n)
		if err != nil {
			return 0, err
		}
		return f(x, y)
	}
}

func truth(b bool) (float64, error) {
	if b {
		return 1, nil
	}
	return 0, nil
}

func (x *exprs) or(depth int) evaluator {
	e := x.and(depth)
	for x.p.accept("or") {
		e = both(e, x.and(depth), func(a, b float64) (float64, error) { return truth(a != 0 || b != 0) })
	}
	return e
}

func (x *exprs) and(depth int) evaluator {
	e := x.not(depth)
	for x.p.accept("and") {
		e = both(e, x.not(depth), func(a, b float64) (float64, error) { return truth(a != 0 && b != 0) })
	}
	return e
}

func (x *exprs) not(depth int) evaluator {
	if depth > maxDepth {
		x.p.fail(x.p.tok.pos, "too many brackets in brackets")
	}
	if x.p.accept("not") {
		e := x.not(depth + 1)
		return func(n names) (float64, error) {
			v, err := e(n)
			if err != nil {
				return 0, err
			}
			return truth(v == 0)
		}
	}
	return x.comparison(depth)
}

var comparisons = map[string]func(a, b float64) bool{
	"==": func(a, b float64) bool { return a == b }, "!=": func(a, b float64) bool { return a != b },
	"<": func(a, b float64) bool { return a < b }, "<=": func(a, b float64) bool { return a <= b },
	">": func(a, b float64) bool { return a > b }, ">=": func(a, b float64) bool { return a >= b },
}

// operator takes a comparison of one or two characters; "" where there is none.
func (x *exprs) operator() string {
	p := x.p
	if !p.is("=") && !p.is("!") && !p.is("<") && !p.is(">") {
		return ""
	}
	op := p.tok.text
	pos := p.tok.pos
	p.advance()
	if p.is("=") && p.tok.glued {
		op += "="
		p.advance()
	}
	if comparisons[op] == nil {
		p.fail(pos, "%q is no comparison", op)
		return ""
	}
	return op
}

func (x *exprs) comparison(depth int) evaluator {
	left := x.masked(depth)
	var all evaluator
	for {
		op := x.operator()
		if op == "" {
			break
		}
		right := x.masked(depth)
		one := both(left, right, func(a, b float64) (float64, error) { return truth(comparisons[op](a, b)) })
		if left = right; all == nil {
			all = one
			continue
		}
		all = both(all, one, func(a, b float64) (float64, error) { return truth(a != 0 && b != 0) }) // a < b < c
	}
	if all == nil {
		return left
	}
	return all
}

func (x *exprs) masked(depth int) evaluator {
	e := x.sum(depth)
	for x.p.accept("&") {
		e = both(e, x.sum(depth), func(a, b float64) (float64, error) { return float64(int64(a) & int64(b)), nil })
	}
	return e
}

func (x *exprs) sum(depth int) evaluator {
	e := x.product(depth)
	for {
		switch {
		case x.p.accept("+"):
			e = both(e, x.product(depth), func(a, b float64) (float64, error) { return a + b, nil })
		case x.p.accept("-"):
			e = both(e, x.product(depth), func(a, b float64) (float64, error) { return a - b, nil })
		default:
			return e
		}
	}
}

func (x *exprs) product(depth int) evaluator {
	e := x.factor(depth)
	for {
		switch {
		case x.p.accept("*"):
			e = both(e, x.factor(depth), func(a, b float64) (float64, error) { return a * b, nil })
		case x.p.accept("/"):
			e = both(e, x.factor(depth), divide)
		default:
			return e
		}
	}
}

func divide(a, b float64) (float64, error) {
	if b == 0 {
		return 0, fmt.Errorf("division by zero")
	}
	return a / b, nil
}

func (x *exprs) factor(depth int) evaluator {
	p := x.p
	switch {
	case p.accept("("):
		e := x.or(depth + 1)
		p.want(")")
		return e
	case p.tok.kind == tokNumber:
		v, err := strconv.ParseFloat(p.tok.text, 64)
		if err != nil {
			p.fail(p.tok.pos, "want a number, have %s", p.tok)
		}
		p.advance()
		return func(names) (float64, error) { return v, nil }
	}
	name := p.word()
	if v, ok := constants[name]; ok {
		return func(names) (float64, error) { return float64(v), nil }
	}
	return func(n names) (float64, error) {
		v, ok := n[name]
		if !ok {
			return 0, fmt.Errorf("%s is not known", name)
		}
		return v, nil
	}
}

// assert evaluates assertions about the connection that was used last.
func (r *run) assert(a *Assertion) error {
	if r.last == nil || r.last.conn == nil {
		return fmt.Errorf("there is no connection to assert something of")
	}
	i := r.last.conn.Info()
	n := values(&i)
	n["tcpi_bytes_acked"] = linuxAcked(&i, r.last.accepted)
	for _, e := range a.Tests {
		v, err := e.eval(n)
		if err != nil {
			return err
		}
		if v == 0 {
			return fmt.Errorf("it is not true that %s; %v", e.text, describeNames(e.text, n))
		}
	}
	return nil
}

// values names what is known as struct tcp_info does: times in microseconds, windows in segments.
func values(i *tcp.Info) names {
	mss := max(float64(i.MSS), 1)
	return names{
		"tcpi_state": float64(linuxState[i.State]), "tcpi_snd_cwnd": float64(i.Cwnd / uint64(mss)), "tcpi_snd_ssthresh": threshold(i.Ssthresh, mss),
		"tcpi_options": float64(optionBits(i)),
		"tcpi_rtt":     float64(i.RTT.Microseconds()), "tcpi_rttvar": float64(i.RTTVar.Microseconds()), "tcpi_min_rtt": float64(i.MinRTT.Microseconds()),
		"tcpi_rto": float64(i.RTO.Microseconds()), "tcpi_snd_mss": float64(i.MSS), "tcpi_pmtu": float64(i.PathMTU),
		"tcpi_bytes_received": float64(i.BytesReceived), "tcpi_total_retrans": float64(i.Retransmits),
		"tcpi_snd_wscale": float64(i.SendScale), "tcpi_rcv_wscale": float64(i.ReceiveScale), "tcpi_reordering": float64(i.Reordering),
		"tcpi_snd_wnd": float64(i.SendWindow), "tcpi_rcv_wnd": float64(i.ReceiveWindow), "tcpi_pacing_rate": float64(i.Pacing), "tcpi_delivery_rate": float64(i.DeliveryRate),
		"cwnd_bytes": float64(i.Cwnd), "ssthresh_bytes": float64(i.Ssthresh), "inflight_bytes": float64(i.InFlight),
		"send_queue": float64(i.SendQueue), "receive_queue": float64(i.ReceiveQueue), "tcpi_received_ce": float64(i.CE), "tcpi_delivered_ce": float64(i.DeliveredCE),
		"tcpi_received_e1_bytes": float64(i.ReceivedByECN[wire.ECT1]), "tcpi_delivered_e1_bytes": float64(i.DeliveredByECN[wire.ECT1]),
		"tcpi_received_e0_bytes": float64(i.ReceivedByECN[wire.ECT0]), "tcpi_delivered_e0_bytes": float64(i.DeliveredByECN[wire.ECT0]),
		"tcpi_received_ce_bytes": float64(i.ReceivedByECN[wire.CE]), "tcpi_delivered_ce_bytes": float64(i.DeliveredByECN[wire.CE]),
		"tcpi_ca_state": float64(i.Recovery), "tcpi_backoff": float64(i.Backoff), "tcpi_retransmits": float64(i.Backoff), "tcpi_probes": float64(i.Probes),
		"tcpi_unacked": float64(i.SendQueue-i.Unsent) / mss, "tcpi_sacked": float64(i.Sacked) / mss, "tcpi_lost": float64(i.Lost) / mss, "tcpi_notsent_bytes": float64(i.Unsent),
		"tcpi_rcv_mss": float64(i.ReceiveMSS), "tcpi_advmss": float64(i.AnnouncedMSS), "tcpi_ato": float64(i.AckDelay.Microseconds()),
		"tcpi_bytes_sent": float64(i.BytesSent), "tcpi_bytes_retrans": float64(i.BytesRetransmitted), "tcpi_segs_in": float64(i.SegmentsIn), "tcpi_segs_out": float64(i.SegmentsOut),
		"tcpi_data_segs_in": float64(i.DataSegmentsIn), "tcpi_data_segs_out": float64(i.DataSegmentsOut), "tcpi_rcv_ooopack": float64(i.OutOfOrder),
		"tcpi_dsack_dups": float64(i.Duplicates), "tcpi_reord_seen": float64(i.Reorderings), "tcpi_total_rto": float64(i.Timeouts), "tcpi_total_rto_recoveries": float64(i.TimeoutSeries),
		"tcpi_total_rto_time": float64(i.TimeoutTime.Milliseconds()), "tcpi_busy_time": float64(i.Busy.Microseconds()), "tcpi_rwnd_limited": float64(i.WindowLimited.Microseconds()),
		"tcpi_sndbuf_limited": float64(i.BufferLimited.Microseconds()), "tcpi_last_data_sent": float64(i.LastDataSent.Milliseconds()),
		"tcpi_last_data_recv": float64(i.LastDataReceived.Milliseconds()), "tcpi_last_ack_recv": float64(i.LastAckReceived.Milliseconds()),
	}
}

// linuxAcked is tcpi_bytes_acked: the sequence numbers that were acknowledged since the socket
// began, without those that only SACK reports. That has the FIN, and the SYN of connect(2); a
// socket of accept(2) begins behind its SYN.
func linuxAcked(i *tcp.Info, accepted bool) float64 {
	n := float64(i.BytesAcked) - float64(i.Sacked)
	if !accepted && i.State >= tcp.StateEstablished {
		n++
	}
	if i.State == tcp.StateFinWait2 || i.State == tcp.StateTimeWait {
		n++
	}
	return n
}

// threshold is ssthresh in segments; Linux's TCP_INFINITE_SSTHRESH before the first loss.
func threshold(bytes uint64, mss float64) float64 {
	if bytes >= math.MaxInt32 {
		return math.MaxInt32
	}
	return float64(bytes / uint64(mss))
}

// optionBits is tcpi_options.
func optionBits(i *tcp.Info) (bits int64) {
	for name, on := range map[string]bool{
		"TCPI_OPT_TIMESTAMPS": i.Timestamps, "TCPI_OPT_SACK": i.SACK, "TCPI_OPT_WSCALE": i.SendScale|i.ReceiveScale != 0, "TCPI_OPT_ECN": i.ECN || i.AccECN,
		"TCPI_OPT_SYN_DATA": i.FastOpen,
	} {
		if on {
			bits |= constants[name]
		}
	}
	return bits
}

// describeNames returns the values of the names in an expression.
func describeNames(text string, n names) string {
	var out []string
	for _, w := range strings.FieldsFunc(text, func(c rune) bool { return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') }) {
		if v, ok := n[w]; ok {
			out = append(out, fmt.Sprintf("%s is %v", w, v))
		}
	}
	return strings.Join(out, ", ")
}
