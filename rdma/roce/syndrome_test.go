package roce

import (
	"testing"
	"time"
)

// TestSyndromes has values of the specification's tables 45, 46 and 49.
func TestSyndromes(t *testing.T) {
	for code, want := range map[uint8]time.Duration{0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond, 14: 1280 * time.Microsecond, 31: 491520 * time.Microsecond} {
		if got := RNRTimer(code); got != want {
			t.Errorf("RNR timer %d is %v, want %v", code, got, want)
		}
	}
	for code, want := range map[uint8]time.Duration{0: 0, 1: 8192, 14: 67108864} {
		if got := AckTimeout(code); got != want {
			t.Errorf("timeout %d is %v, want %v", code, got, want)
		}
	}
	for receives, want := range map[int]Syndrome{-1: 0, 0: 0, 1: 1, 4: 4, 5: 4, 6: 5, 11: 6, 16: 8, 32767: 29, 32768: 30, 1 << 20: 30} {
		if got := Ack(receives); got != want {
			t.Errorf("%d receives: code %d, want %d", receives, got, want)
		}
	}
	for code := range Syndrome(31) {
		n, limited := code.Credits()
		if Ack(int(n)) != code || !limited {
			t.Errorf("code %d stands for %d, whose code is %d", code, n, Ack(int(n)))
		}
	}
	if _, limited := UnlimitedCredits.Credits(); limited {
		t.Error("code 31 is a limit")
	}
	for s, want := range map[Syndrome][3]bool{UnlimitedCredits: {true}, RNR(12): {1: true}, NakSequence: {2: true}, NakRemoteAccess: {2: true}, 0x40: {}, 0x80: {}} {
		if got := [3]bool{s.IsAck(), s.IsRNR(), s.IsNak()}; got != want {
			t.Errorf("syndrome %#x: %v, want %v", s, got, want)
		}
	}
	if RNR(12) != 0x2c {
		t.Errorf("RNR NAK with code 12 is %#x", RNR(12))
	}
}
