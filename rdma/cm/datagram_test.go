package cm

import (
	"errors"
	"testing"
	"time"
)

// resolve asks for the queue pair of service 7 of datagrams.
func (w *world) resolve() *Conn {
	w.t.Helper()
	c, err := w.a.m.Resolve(w.now, Peer{Addr: w.b.addr}, ServiceID(SpaceUDP, 7), []byte("who"))
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// newResolutions returns a world whose b listens for datagrams, and answers with a status.
func newResolutions(t *testing.T, status SIDRStatus) (w *world, reply *Message) {
	w = newWorld(t, 1, Config{AcceptTimeout: 20 * time.Second})
	if _, err := w.b.m.Listen(ServiceID(SpaceUDP, 7), 4, nil); err != nil {
		t.Fatal(err)
	}
	w.b.onReq = func(c *Conn) {
		if !c.Datagram() || c.Active() || w.b.data[:3] != "who" {
			t.Errorf("%v %q", c.State(), w.b.data)
		}
		if err := c.Answer(w.now, status, 300, 0x1234, []byte("me")); err != nil {
			t.Error(err)
		}
		if err := c.Answer(w.now, status, 300, 1, nil); !errors.Is(err, ErrState) {
			t.Errorf("a second answer: %v", err)
		}
	}
	reply = &Message{}
	notify := w.a.m.cfg.Notify
	w.a.m.cfg.Notify = func(e Event) {
		if e.Kind == Replied {
			*reply = *e.Message
		}
		notify(e)
	}
	return w, reply
}

// TestResolution loses each message once, and sends each twice: the program is asked once.
func TestResolution(t *testing.T) {
	for _, kind := range []Kind{0, SIDRREQ, SIDRREP} {
		for _, status := range []SIDRStatus{SIDRValid, SIDRRejected} {
			w, r := newResolutions(t, status)
			w.twice = true
			lost := 0
			w.drop = func(m *Message) bool {
				lost++
				return m.Kind == kind && lost < 3
			}
			w.resolve()
			w.run(5*time.Second, nil)
			w.expect(w.a, "replied")
			w.expect(w.b, "requested")
			if r.Status != uint8(status) || r.QPN != 300 || r.QKey != 0x1234 || string(r.Private[:2]) != "me" {
				t.Errorf("%v: %+v", kind, r)
			}
			w.idle()
		}
	}
}

// TestNoResolution has each way in which no queue pair is learnt.
func TestNoResolution(t *testing.T) {
	t.Run("nothing listens", func(t *testing.T) {
		w, r := newResolutions(t, SIDRValid)
		for _, service := range []uint64{ServiceID(SpaceUDP, 8), ServiceID(SpaceTCP, 7)} {
			if _, err := w.a.m.Resolve(w.now, Peer{Addr: w.b.addr}, service, nil); err != nil {
				t.Fatal(err)
			}
			w.run(5*time.Second, nil)
			if r.Status != uint8(SIDRNoService) || r.Service != service {
				t.Errorf("%+v", r)
			}
		}
		w.expect(w.a, "replied", "replied")
		w.expect(w.b)
		w.idle()
	})
	t.Run("nothing answers", func(t *testing.T) {
		w, _ := newResolutions(t, SIDRValid)
		w.drop = func(*Message) bool { return true }
		w.resolve()
		w.run(10*time.Second, nil)
		w.expect(w.a, "unreachable")
		w.idle()
	})
	t.Run("the program does not answer", func(t *testing.T) {
		w, r := newResolutions(t, SIDRValid)
		w.b.onReq = nil
		w.a.m.cfg.AcceptTimeout = time.Second
		w.b.m.cfg.AcceptTimeout = time.Second
		w.resolve()
		w.run(10*time.Second, nil)
		w.expect(w.b, "requested", "unreachable")
		w.expect(w.a, "replied")
		if r.Status != uint8(SIDRRejected) {
			t.Errorf("%+v", r)
		}
		w.idle()
	})
	t.Run("given up", func(t *testing.T) {
		w, _ := newResolutions(t, SIDRValid)
		c := w.resolve()
		if err := c.Reject(w.now, RejConsumer, nil, nil); err != nil {
			t.Error(err)
		}
		if err := c.Reject(w.now, RejConsumer, nil, nil); !errors.Is(err, ErrState) {
			t.Error(err)
		}
		w.run(5*time.Second, nil)
		w.expect(w.a)
		w.idle()
	})
	t.Run("connections to a service of datagrams", func(t *testing.T) {
		w, _ := newResolutions(t, SIDRValid)
		if _, err := w.a.m.Connect(w.now, Peer{Addr: w.b.addr}, &Request{Service: ServiceID(SpaceUDP, 7), QPN: 5, MTU: 1024}); err != nil {
			t.Fatal(err)
		}
		w.run(5*time.Second, nil)
		w.expect(w.a, "rejected")
		w.expect(w.b)
	})
	t.Run("more than the listener takes", func(t *testing.T) {
		w, _ := newResolutions(t, SIDRValid)
		w.b.onReq = nil
		for range 5 {
			w.resolve()
		}
		w.run(time.Second, nil)
		if got := w.b.m.Counters().Received[BacklogFull]; got == 0 || len(w.b.events) != 4 {
			t.Errorf("%d dropped, %v", got, w.b.events)
		}
	})
}

// TestForgedResolutions has third parties answer, and requests that are not the first's.
func TestForgedResolutions(t *testing.T) {
	w, _ := newResolutions(t, SIDRValid)
	w.drop = func(*Message) bool { return true }
	c := w.resolve()
	good := Message{Kind: SIDRREP, TID: c.tid, LocalID: c.localID, QPN: 300, Service: c.service}
	for i, forge := range []func(m *Message, from *Peer){
		func(m *Message, _ *Peer) { m.TID++ },
		func(m *Message, _ *Peer) { m.LocalID++ },
		func(m *Message, _ *Peer) { m.Service++ },
		func(_ *Message, p *Peer) { p.Addr = addrA },
	} {
		m, from := good, Peer{Addr: addrB}
		forge(&m, &from)
		if why := w.a.m.Input(w.now, &from, m.Append(nil)); why != UnknownID {
			t.Errorf("%d: %v", i, why)
		}
	}
	q := Message{Kind: SIDRREQ, TID: 5, LocalID: 9, Service: ServiceID(SpaceUDP, 7), Private: []byte("who")}
	for i, want := range []Reason{Taken, Duplicate} {
		if why := w.b.m.Input(w.now, &Peer{Addr: addrA}, q.Append(nil)); why != want {
			t.Errorf("%d: %v", i, why)
		}
	}
	q.TID++
	if why := w.b.m.Input(w.now, &Peer{Addr: addrA}, q.Append(nil)); why != DuplicateID {
		t.Error(why)
	}
	q.LocalID = 0
	if why := w.b.m.Input(w.now, &Peer{Addr: addrA}, q.Append(nil)); why != BadField {
		t.Error(why)
	}
	if why := w.a.m.Input(w.now, &Peer{Addr: addrB}, good.Append(nil)); why != Taken {
		t.Error(why)
	}
}
