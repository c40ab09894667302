package ip

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// TestALeasedAddressEndsWithItsLease gives an address a lifetime, prolongs it once, and lets it end.
func TestALeasedAddressEndsWithItsLease(t *testing.T) {
	l := newLAN(t)
	a := l.add(1, nil).addAddr("198.18.0.5/24").addAddr("198.18.0.6/24")
	leased, other := addr("198.18.0.5"), addr("198.18.0.6")
	source := func() wire.Addr {
		s, _ := a.Source(l.now, addr("198.18.0.9"), AnyDev)
		return s
	}
	if source() != leased {
		t.Fatalf("source %v before", source())
	}
	ups := a.countChanges(AddrUp)
	set := func(valid, preferred time.Duration) {
		t.Helper()
		if err := a.SetLifetime(l.now, 0, leased, l.now.Add(valid), l.now.Add(preferred)); err != nil {
			t.Fatal(err)
		}
	}
	set(time.Hour, time.Minute)
	if a.countChanges(AddrUp) != ups+1 {
		t.Error("the other loops do not learn of it")
	}
	l.after(59 * time.Second)
	if source() != leased || a.stateOf("198.18.0.5") != "preferred" {
		t.Errorf("source %v while it is preferred", source())
	}
	l.after(2 * time.Second)
	if source() != other || a.stateOf("198.18.0.5") != "deprecated" || !a.Usable(leased) {
		t.Errorf("source %v when it is deprecated (RFC 6724 5, rule 3)", source())
	}
	set(time.Hour, time.Hour)
	if source() != leased {
		t.Errorf("source %v when it was prolonged", source())
	}
	l.after(time.Hour - time.Second)
	if !a.Usable(leased) {
		t.Error("it ends before its lease")
	}
	l.after(2 * time.Second)
	if a.Usable(leased) || a.stateOf("198.18.0.5") != "none" || source() != other || a.countChanges(AddrDown) != 1 {
		t.Error("it outlives its lease")
	}
	if a.SetLifetime(l.now, 0, leased, clock.Never, clock.Never) != ErrMissing {
		t.Error("an address that is not there has a lifetime")
	}
	if err := a.SetLifetime(l.now, 0, other, clock.Never, l.now); err != nil || a.stateOf("198.18.0.6") != "deprecated" {
		t.Errorf("%v, %s", err, a.stateOf("198.18.0.6"))
	}
	if err := a.SetLifetime(l.now, 0, other, l.now, clock.Never); err != nil || a.Usable(other) {
		t.Errorf("%v: an address without time is used", err)
	}
}
