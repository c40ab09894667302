package transport

import "testing"

// TestMissingMemory has a process lose its memory between registration and use: the requests that need it fail, each with the
// status of a region that ends, and the other side's memory stays.
func TestMissingMemory(t *testing.T) {
	for _, c := range []struct {
		name string
		op   Op
		own  bool // of the requester: otherwise of the responder
		want Status
	}{
		{"WRITE to", OpWrite, false, RemoteAccess},
		{"READ from", OpRead, false, RemoteAccess},
		{"FETCH_ADD of", OpFetchAdd, false, RemoteAccess},
		{"SEND to", OpSend, false, RemoteOperation},
		{"WRITE from", OpWrite, true, LocalProtection},
		{"READ into", OpRead, true, LocalProtection},
		{"FETCH_ADD into", OpFetchAdd, true, LocalProtection},
	} {
		t.Run(c.name+" missing memory", func(t *testing.T) {
			p := newPair(t, options{})
			from, to := p.a, p.b
			if c.own {
				from, to = p.b, p.a
			}
			to.receive(1, 64, 64)
			p.b.far.missing = true
			from.post(from.request(7, c.op, 0, 8, 0))
			p.run()
			if len(from.sends) != 1 || from.sends[0].Status != c.want {
				t.Errorf("%v, want %v", from.sends, c.want)
			}
		})
	}
}

// TestMismatchWritesNothing compares with another value: the memory of the process is not written, not even with what it has.
func TestMismatchWritesNothing(t *testing.T) {
	p := newPair(t, options{})
	p.b.fill(3)
	w := p.a.request(7, OpCompareSwap, 0, 8, 0)
	w.Compare = 1
	p.a.post(w)
	p.run()
	if len(p.a.sends) != 1 || p.a.sends[0].Status != Success || p.b.far.writes != 0 {
		t.Errorf("%v, and %d writes", p.a.sends, p.b.far.writes)
	}
}
