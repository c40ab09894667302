package tcp

import (
	"bytes"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

func TestFastOpenCookiesAreOfAddressAndHour(t *testing.T) { // RFC 7413 4.1.2
	s := newSecrets(&[32]byte{1})
	now := clock.Time(1000*time.Hour + 10*time.Minute)
	a, b := from(1), from(2)
	c := s.fastOpenCookie(now, &a, 0)
	port := a
	port.RemotePort++
	for name, x := range map[string]struct {
		t        *wire.Tuple
		after    time.Duration
		cookie   []byte
		ok, old_ bool
	}{
		"at once":         {&a, 0, c[:], true, false},
		"another port":    {&port, 0, c[:], true, false},
		"in the hour":     {&a, 49 * time.Minute, c[:], true, false},
		"in the next":     {&a, time.Hour, c[:], true, true},
		"after two":       {&a, 2 * time.Hour, c[:], false, false},
		"another address": {&b, 0, c[:], false, false},
		"cut":             {&a, 0, c[:7], false, false},
		"none":            {&a, 0, nil, false, false},
		"longer":          {&a, 0, append(c[:8:8], 0), false, false},
	} {
		if ok, old := s.verifyFastOpenCookie(now.Add(x.after), x.t, x.cookie); ok != x.ok || old != x.old_ {
			t.Errorf("%s: %v, old %v", name, ok, old)
		}
	}
}

func TestFastOpenRemembersServersWithinBounds(t *testing.T) { // RFC 7413 4.1.3
	var f fastOpenCache
	server := func(n int) *wire.Addr { a := from(n).Remote; a[10] = byte(n >> 16); return &a }
	if c, _, ok := f.cookie(0, server(0)); c != nil || !ok {
		t.Error("a server that is not known has to be asked")
	}
	for _, bad := range []int{0, 2, 3, 5, 17, 18} {
		f.store(server(0), make([]byte, bad), 1)
	}
	if f.servers.Len() != 0 {
		t.Error("a cookie of a wrong length was kept")
	}
	for n := range maxFastOpenServers + 100 {
		f.store(server(n), []byte{byte(n), byte(n >> 8), 3, 4}, uint16(n))
	}
	if n := f.servers.Len(); n != maxFastOpenServers {
		t.Errorf("%d servers", n)
	}
	for n, want := range map[int]bool{99: false, 100: true, maxFastOpenServers + 99: true} {
		c, mss, _ := f.cookie(0, server(n))
		if (len(c) == 4) != want || want && (!bytes.Equal(c, []byte{byte(n), byte(n >> 8), 3, 4}) || mss != uint16(n)) {
			t.Errorf("server %d: %x, MSS %d", n, c, mss)
		}
	}
}

func TestFastOpenPausesAfterLoss(t *testing.T) { // RFC 7413 4.1.3.1
	var f fastOpenCache
	a := from(1).Remote
	now := clock.Time(0)
	tried := func() bool { _, _, ok := f.cookie(now, &a); return ok }
	for round := range 3 {
		f.markLost(now, &a)
		quiet := fastOpenPause << round
		now = now.Add(quiet - 1)
		if tried() {
			t.Errorf("loss %d: tried within %v", round, quiet)
		}
		if now++; !tried() {
			t.Errorf("loss %d: not tried after %v", round, quiet)
		}
	}
	f.markWorking(&a, 1460)
	f.markLost(now, &a)
	if now = now.Add(fastOpenPause); !tried() {
		t.Error("what worked still counts as lost")
	}
}
