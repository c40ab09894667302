package ecn

import (
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

func TestSection3_1_4_1Failures(t *testing.T) {
	var f Failures
	a, b := wire.AddrFrom4([4]byte{198, 18, 0, 1}), wire.AddrFrom4([4]byte{198, 18, 0, 2})
	now := int64(time.Hour)
	want := func(what string, server wire.Addr, paused bool) {
		t.Helper()
		if f.Paused(now, &server) != paused {
			t.Errorf("%s: paused %v", what, !paused)
		}
	}
	want("an unknown server", a, false)
	f.Failed(now, &a)
	want("after one failure", a, false)
	f.Worked(&a)
	f.Failed(now, &a)
	want("after a failure, a success and a failure", a, false)
	f.Failed(now, &a)
	want("after two in a row", a, true)
	want("another server", b, false)
	pause := int64(30 * time.Minute)
	for range 10 { // each further failure doubles it, up to 32 hours
		now += pause - 1
		want("at the end of the pause", a, true)
		now++
		want("after it", a, false)
		f.Failed(now, &a)
		want("after a further failure", a, true)
		pause = min(2*pause, int64(32*time.Hour))
	}
	now += pause
	f.Worked(&a)
	f.Failed(now, &a)
	want("after a success and a failure", a, false)
}

func TestFailuresAreBounded(t *testing.T) {
	var f Failures
	for i := range 3 * mostFailing {
		for range failuresToPause {
			a := wire.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
			f.Failed(0, &a)
		}
	}
	if n := f.servers.Len(); n != mostFailing {
		t.Errorf("%d servers", n)
	}
	oldest := wire.AddrFrom4([4]byte{198, 18, byte((2*mostFailing - 1) >> 8), 0xff})
	kept := wire.AddrFrom4([4]byte{198, 18, byte((2 * mostFailing) >> 8), 0})
	if f.Paused(0, &oldest) || !f.Paused(0, &kept) {
		t.Error("not the latest are kept")
	}
}
