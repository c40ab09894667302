package loss

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Pool is the memory of the boards of one loop: records of what is in flight. The zero value is ready.
// A board holds memory of it only while something is in flight, so idle connections have none.
type Pool struct{}

// Options are what a board is to know of its connection.
type Options struct {
	MSS  uint32        // payload of a full segment, bytes
	SACK bool          // the peer sends SACK
	Tick time.Duration // of the timestamps in Ack.Echo; 0 where there are none
}

// Board is one connection's. The zero value becomes usable by Init.
type Board struct{ _ *Pool }

// Init makes the board ready to send from sequence number seq on, with nothing in flight, and no round-trip
// time known.
func (b *Board) Init(p *Pool, seq uint32, o Options) {}

// SetOptions tells what the handshake, or path MTU discovery, has changed.
func (b *Board) SetOptions(o Options) {}

// Release gives back all memory: the connection ends.
func (b *Board) Release() {}

// Measured takes a round-trip time that the board has not seen itself, such as a handshake's.
func (b *Board) Measured(now clock.Time, rtt time.Duration) {}

// Sent notes n new bytes of sequence space from seq, which is where the last ended. The record is one
// super-segment: it may hold many segments.
func (b *Board) Sent(now clock.Time, seq, n uint32) {}

// Resent notes that n bytes from seq, at most what Lost or Probe returned, were sent again.
func (b *Board) Resent(now clock.Time, seq, n uint32) {}

// Idle notes that the sender has nothing more to send though it might: rate samples until what is now in
// flight is delivered are limited by the application.
func (b *Board) Idle() {}

// Ack applies an ACK and fills s.
func (b *Board) Ack(now clock.Time, a *Ack, s *Sample) {}

// Lost returns the first range that is lost and was not sent again; n is 0 where there is none.
func (b *Board) Lost() (seq, n uint32) { return 0, 0 }

// Probe returns the range to send as tail loss probe after event Probe, where there is no new data to send:
// the last segment in flight.
func (b *Board) Probe() (seq, n uint32) { return 0, 0 }

// Probed notes that a probe was sent, up to seq: new data (which was also noted by Sent) or the range of
// Probe (also Resent).
func (b *Board) Probed(seq uint32, fresh bool) {}

// Timer returns when OnTimer wants to be called: clock.Never with nothing in flight.
func (b *Board) Timer() clock.Time { return clock.Never }

// OnTimer does what is due, and returns what changed: Probe, Timeout, Marked or nothing.
func (b *Board) OnTimer(now clock.Time) Events { return 0 }

// Retry has all that is in flight sent again, as after a timeout but without doubt of the network:
// the MTU has shrunk.
func (b *Board) Retry(now clock.Time) {}

// Flight is the pipe, in bytes: what was sent and is neither acknowledged, SACKed nor lost (RFC 6675 4).
func (b *Board) Flight() uint32 { return 0 }

// Outstanding is SND.NXT - SND.UNA.
func (b *Board) Outstanding() uint32 { return 0 }

// InRecovery reports whether a loss episode goes on: fast recovery, or after a timeout.
func (b *Board) InRecovery() bool { return false }

// SRTT is the smoothed round-trip time; 0 while none was measured.
func (b *Board) SRTT() time.Duration { return 0 }

// MinRTT is the least round-trip time of late; 0 while none was measured.
func (b *Board) MinRTT() time.Duration { return 0 }

// RTO is the retransmission timeout with its backoff.
func (b *Board) RTO() time.Duration { return 0 }

// Backoff is how many times in a row the timer ran out.
func (b *Board) Backoff() int { return 0 }

// Delivered is how many bytes have arrived since Init; TotalLost how many were marked lost.
func (b *Board) Delivered() uint64 { return 0 }

// TotalLost is how many bytes were marked lost since Init.
func (b *Board) TotalLost() uint64 { return 0 }
