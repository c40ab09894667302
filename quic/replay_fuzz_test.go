package quic

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// FuzzStrikeRegister issues and uses tickets in an order, at times, and with damage that the fuzzer chooses. A
// ticket is good once, within its window, and only as it was issued; the register never has more than it may.
func FuzzStrikeRegister(f *testing.F) {
	f.Add([]byte{0, 8, 8, 0, 0x7b, 16, 16})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 8, 16, 24, 32, 40, 0xfb, 8})
	f.Add([]byte{0, 12, 9, 10, 8})
	f.Fuzz(func(t *testing.T, calls []byte) {
		const entries = 4
		r, now := registerAt(StrikeConfig{Window: time.Minute, Entries: entries})
		type ticket struct {
			extra  []byte
			issued time.Time
			used   bool
		}
		var all []*ticket
		for i, c := range calls {
			arg := int(c >> 3)
			switch c & 7 {
			default: // use one, perhaps for the second time
				if arg >= len(all) {
					continue
				}
				k, damaged := all[arg], c&7 == 1
				extra := k.extra
				if damaged {
					extra = append([]byte(nil), extra...)
					extra[i%(len(extra)-8)] ^= 1
				}
				got := r.permit(fmt.Append(nil, arg), [][]byte{[]byte("other"), extra})
				good := !damaged && !k.used && !now.Before(k.issued) && now.Sub(k.issued) < time.Minute
				if got && !good || good && !got && r.Stats().Full == 0 {
					t.Fatalf("call %d: permitted %v, good %v", i, got, good)
				}
				k.used = k.used || got
			case 2:
				all = append(all, &ticket{extra: r.extra(), issued: *now})
			case 3:
				*now = now.Add(time.Duration(arg*arg) * 100 * time.Millisecond)
			}
			if len(r.now) > entries || len(r.before) > entries {
				t.Fatalf("%d and %d entries", len(r.now), len(r.before))
			}
		}
	})
}

// FuzzExtra parses what sessions carry: whatever it is, a time comes of the register's own only.
func FuzzExtra(f *testing.F) {
	r, _ := registerAt(StrikeConfig{})
	f.Add(r.extra(), true)
	f.Add([]byte("millrace strike 1"), false)
	f.Fuzz(func(t *testing.T, b []byte, own bool) {
		r, _ := registerAt(StrikeConfig{})
		if own && len(b) >= len(extraPrefix)+len(r.id) {
			b = append([]byte(nil), b...)
			copy(b, extraPrefix)
			copy(b[len(extraPrefix):], r.id[:])
		}
		at, ok := r.issued([][]byte{b})
		if want := own && len(b) == len(extraPrefix)+len(r.id)+8; ok != want {
			t.Fatalf("%x: %v, want %v", b, ok, want)
		}
		if ok && at.UnixNano() != int64(binary.BigEndian.Uint64(b[len(b)-8:])) {
			t.Fatalf("%v of %x", at, b)
		}
	})
}
