package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/loss"
)

// sender is the part of a connection that decides what may be sent and when: what is in flight, what was lost, and
// congestion control. It moves no data: Conn's output asks it.
//
// Input:  on each acceptable ACK   x.ack(now, &loss.Ack{...}, ece, ceBytes)
// Output: for x.lost() ranges, then new data, while n := x.room(now) > 0: send at most n; x.sent or x.resent
// Timers: x.timer() is when to call x.onTimer(now); then output (a probe is due where x.probing()).
type sender struct {
	board loss.Board
	cc    cc.Controller

	nextSend clock.Time // pacing: nothing before it
}

// init makes the sender ready from sequence number seq, which the SYN takes.
func (x *sender) init(p *loss.Pool, seq uint32, o loss.Options, control cc.Controller) {
	x.cc = control
	x.board.Init(p, seq, o)
}

// sent notes n bytes of new sequence space from seq (SYN and FIN count); limited says that there is nothing more to send
// though window and receiver would allow it.
func (x *sender) sent(now clock.Time, seq, n uint32, limited bool) {
	x.board.Sent(now, seq, n)
	if limited {
		x.board.Idle()
	}
}

// resent notes that n bytes from seq, as lost or probe said, were sent again.
func (x *sender) resent(now clock.Time, seq, n uint32) { x.board.Resent(now, seq, n) }

// ack applies an acceptable ACK: ece is a classic ECN-Echo (RFC 3168), ce the bytes newly reported as marked
// (AccECN, RFC 9768; or DCTCP's count).
func (x *sender) ack(now clock.Time, a *loss.Ack, ece bool, ce uint32) loss.Events { return 0 }

// room is how many bytes may be sent now by window, PRR and pacing: a full segment or more, or 0. When pacing is what
// holds, wait is when to ask again.
func (x *sender) room(now clock.Time) (n uint32, wait clock.Time) { return 0, clock.Never }

// lost returns the first range to send again, n = 0 for none.
func (x *sender) lost() (seq, n uint32) { return x.board.Lost() }

// timer is when onTimer wants to be called (retransmission, probe, reordering; pacing is output's own).
func (x *sender) timer() clock.Time { return x.board.Timer() }

// onTimer does what is due. Probe in the result: send one segment now, whatever room says: new data if the peer's
// window has room, else the range of board.Probe; then board.Probed.
func (x *sender) onTimer(now clock.Time) loss.Events { return x.board.OnTimer(now) }

// rto is the timeout that the next transmission gets.
func (x *sender) rto() time.Duration { return x.board.RTO() }
