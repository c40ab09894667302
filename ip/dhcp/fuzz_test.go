package dhcp

import (
	"bytes"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

var mac = [6]byte{2, 0, 0, 0, 0, 1}

// FuzzInput gives a client any message in the states in which it waits for one.
func FuzzInput(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		now, sent := clock.Time(0), 0
		var bound []Lease
		c := New(Config{
			MAC:   mac,
			Send:  func(_ clock.Time, _ wire.Addr, m []byte) { sent++; b = answerTo(m, b) },
			Bound: func(_ clock.Time, l Lease) { bound = append(bound, l) },
			Lost:  func(clock.Time, Lease) {},
		})
		for range 100 {
			now = max(now, c.Poll(now))
			c.Input(now, b)
			if now == clock.Never {
				break
			}
		}
		for _, l := range bound {
			if !host(l.Addr) || l.Bits > 32 || l.Bits < 0 || l.Until <= 0 {
				t.Fatalf("%+v", l)
			}
		}
		if now < clock.Time(time.Minute) {
			t.Fatalf("%d messages in %v", sent, time.Duration(now))
		}
	})
}

// answerTo gives the message b the transaction of m.
func answerTo(m, b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) >= headerLen {
		copy(b[4:8], m[4:8])
		copy(b[atCHAddr:], mac[:])
	}
	return b
}
