package control

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// Both ends of a connection have forgotten it, and the client uses its port again: from the backend's SYN+ACK on the entry
// is that of the new connection, and lives as long as this is used. A challenge ACK changes nothing.
func TestEndsThatHaveForgottenAConnectionOpenItAnew(t *testing.T) {
	for _, source := range []string{"", "source: client\n    unknown: drop"} {
		for _, closing := range []bool{false, true} {
			w := newWorld(t, fill(source))
			out := w.connect(host)
			want := "established"
			if closing {
				fin := client(host, web, "FA")
				fin.seq, fin.payload = firstSeq+24, ""
				w.expect(0, fin.bytes(), 1)
				want = "half_closed"
			}
			backend := func(flags string, seq, ack uint32, payload string) {
				t.Helper()
				s := answer(out, flags)
				s.seq, s.ack, s.payload = seq, ack, payload
				w.expect(1, s.bytes(), 0)
			}
			send := func(flags string, seq, ack uint32) {
				t.Helper()
				s := client(host, web, flags)
				s.seq, s.ack, s.payload = seq, ack, ""
				w.expect(0, s.bytes(), 1)
			}
			state := func(when, want string, least time.Duration) {
				t.Helper()
				got := w.only()
				if got.State != want || got.Left < least {
					t.Errorf("%q, %s: %s for %v, want %s for %v", source, when, got.State, got.Left, want, least)
				}
				w.audit()
				ending := uint64(0)
				if want == "half_closed" {
					ending = 1
				}
				w.after(0)
				if st := w.g.Status(); st.Closing != ending || st.HalfOpen != 0 || st.Connections != 1 || st.Services[0].Backends[0].Closing+st.Services[0].Backends[1].Closing != ending {
					t.Errorf("%q, %s: %d connections, %d closing, %d half-open, backends %+v", source, when, st.Connections, st.Closing, st.HalfOpen, st.Services[0].Backends)
				}
			}
			w.after(3 * time.Minute) // of four, half-closed
			backend("SA", 500_000, 77_000, "")
			state("a SYN+ACK to no SYN", want, 0)
			send("S", 76_999, 0)
			backend("SA", 500_000, 77_001, "")
			state("a SYN+ACK to another SYN", want, 0)
			backend("A", firstSeq, firstSeq+24, "")
			if closing {
				w.after(30 * time.Second)
			}
			state("a challenge ACK", want, 0)
			backend("SA", 500_000, 77_000, "")
			state("a SYN+ACK", "syn_recv", 200*time.Second)
			send("A", 77_000, 500_001)
			state("the last ACK", "established", 2*time.Hour)
			for range 5 { // each is followed
				w.after(100 * time.Minute)
				backend("A", 500_001, 77_000, "data of the new connection")
				send("A", 77_000, 500_001)
				state("in use", "established", 2*time.Hour)
			}
			send("FA", 77_000, 500_001)
			state("the FIN of the new connection", "half_closed", 0)
		}
	}
}

// A closed connection is not opened by the answer to a SYN from before; nor is one whose place another's SYN has taken.
func TestWhatNoSYNOpensStaysAsItIs(t *testing.T) {
	w := newWorld(t, fill(""))
	syn := func(src string, seq uint32) {
		t.Helper()
		s := client(src, web, "S")
		s.seq, s.payload = seq, ""
		w.expect(0, s.bytes(), 1)
	}
	answers := func(out []byte, src string, ack uint32, want string) {
		t.Helper()
		s := answer(out, "SA")
		s.seq, s.ack, s.payload = 500_000, ack, ""
		w.expect(1, s.bytes(), 0)
		if got := w.conns()[netip.MustParseAddrPort(src)].State; got != want {
			t.Errorf("%s: %s, want %s", src, got, want)
		}
		w.audit()
	}
	out := w.connect(host)
	syn(host, 76_999)
	rst := answer(out, "R")
	rst.seq, rst.payload = firstSeq, ""
	w.expect(1, rst.bytes(), 0)
	answers(out, host, 77_000, "reset")

	first, all := w.connect("198.18.0.10:1000"), [][]byte(nil)
	syn("198.18.0.10:1000", 76_999)
	for i := range 100 {
		all = append(all, w.connect(fmt.Sprintf("198.18.0.11:%d", 1000+i)))
	}
	for i := range all {
		syn(fmt.Sprintf("198.18.0.11:%d", 1000+i), 76_999)
	}
	answers(first, "198.18.0.10:1000", 77_000, "established")
	answers(all[99], "198.18.0.11:1099", 77_000, "syn_recv")
}
