package rdma

import "testing"

// TestReport has the report of two connected queue pairs contain their numbers.
func TestReport(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := newSide(t, c, RC, 64), newSide(t, c, RC, 64)
	connectSides(t, a, b, ConnParam{}, ConnParam{})
	a.post(SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(0, 64)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
	a.completions(1)
	r := c.Report()
	if r.Address != ownAddr || r.QueuePairs != 2 || len(r.QueuePairList) != 2 || r.Regions != 2 || r.Connections != 2 || r.HalfOpen != 0 || r.Dropped != 0 || r.Received < 5 {
		t.Fatalf("%+v", r)
	}
	for _, q := range r.QueuePairList {
		if q.Service != "RC" || q.State != "RTS" || q.Peer != ownAddr || q.Number == a.qp.QPN() && (q.PeerNumber != b.qp.QPN() || q.Sent != 1) {
			t.Errorf("%+v", q)
		}
	}
	c.lock.Enter()
	c.count.unknownQP++
	c.lock.ExitUnchanged()
	if n := c.Report().Dropped; n != 1 {
		t.Errorf("%d dropped", n)
	}
}
