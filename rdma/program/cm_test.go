package program

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/transport"
)

// manage does a request of the connection manager.
func (k *client) manage(q cmRequest) (r cmReply, fds []int, err error) {
	q.version = Version
	_ = k.c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := k.c.Write(unsafe.Slice((*byte)(unsafe.Pointer(&q)), cmRequestSize)); err != nil {
		return r, nil, err
	}
	in, oob := make([]byte, cmReplySize+1), make([]byte, 64)
	n, oobn, _, _, err := k.c.ReadMsgUnix(in, oob)
	if err != nil || n != cmReplySize {
		return r, nil, errors.Join(err, errors.New("no reply"))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), cmReplySize), in)
	if r.errno != 0 {
		return r, descriptors(oob[:oobn]), syscall.Errno(r.errno)
	}
	return r, descriptors(oob[:oobn]), nil
}

// cmSide is a channel of events of a client, and a queue pair.
type cmSide struct {
	*end
	channel uint32
	fd      int
}

func newCMSide(k *client) *cmSide {
	k.t.Helper()
	s := &cmSide{end: newEnd(k)}
	s.channel, s.fd = s.newChannel()
	return s
}

func (s *cmSide) newChannel() (number uint32, fd int) {
	s.k.t.Helper()
	r, fds, err := s.k.manage(cmRequest{op: uint32(cmCreateChannel)})
	if err != nil || len(fds) != 1 {
		s.k.t.Fatal(err, fds)
	}
	s.k.t.Cleanup(func() { unix.Close(fds[0]) })
	return r.object, fds[0]
}

// do does a request that has to succeed.
func (s *cmSide) do(o op, q cmRequest) cmReply {
	s.k.t.Helper()
	q.op = uint32(o)
	r, _, err := s.k.manage(q)
	if err != nil {
		s.k.t.Fatalf("operation %d: %v", o, err)
	}
	return r
}

// fails does a request that has to fail.
func (s *cmSide) fails(want syscall.Errno, o op, q cmRequest) {
	s.k.t.Helper()
	q.op = uint32(o)
	if _, _, err := s.k.manage(q); !errors.Is(err, want) {
		s.k.t.Errorf("operation %d: %v, want %v", o, err, want)
	}
}

func (s *cmSide) newID() uint32 {
	s.k.t.Helper()
	return s.do(cmCreateID, cmRequest{channel: s.channel, space: 0x106, service: typeRC}).object
}

// event waits for an event of a kind.
func (s *cmSide) event(kind uint32) cmReply {
	s.k.t.Helper()
	return s.eventOn(s.channel, s.fd, kind)
}

func (s *cmSide) eventOn(channel uint32, fd int, kind uint32) cmReply {
	s.k.t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	s.k.await("an event", func() bool {
		n, _ := unix.Poll(poll, 100)
		return n == 1
	})
	if _, err := unix.Read(fd, make([]byte, 1)); err != nil {
		s.k.t.Fatal(err)
	}
	r := s.do(cmGetEvent, cmRequest{channel: channel})
	if r.object == none || r.kind != kind {
		s.k.t.Fatalf("event %d of %#x with status %d, want %d", r.kind, r.object, r.status, kind)
	}
	return r
}

// port returns an endpoint of any address.
func port(n uint16) endpoint { return endpoint{port: n, any: 1} }

// listen returns a listener and its port.
func (s *cmSide) listen() (id uint32, p uint16) {
	s.k.t.Helper()
	id = s.newID()
	s.do(cmBind, cmRequest{object: id, local: port(0)})
	return id, s.do(cmListen, cmRequest{object: id}).local.port
}

// route returns an identifier that may connect to a port of the node's own address.
func (s *cmSide) route(p uint16) uint32 {
	s.k.t.Helper()
	id := s.newID()
	s.do(cmResolve, cmRequest{object: id, local: port(0), remote: port(p), timeout: 2000})
	s.event(cmEventAddrResolved)
	s.do(cmResolveRoute, cmRequest{object: id})
	s.event(cmEventRouteResolved)
	return id
}

// param returns the parameters of a connection with private data.
func (s *cmSide) param(private string) (c connection) {
	c = connection{qpn: s.qpn, resources: 3, depth: 2, retries: 7, rnrRetries: 7, flowControl: 1}
	c.privateLen = uint16(copy(c.private[:], private))
	return c
}

// lead leads the queue pair of a side to RTS, by the attributes of its identifier.
func (s *cmSide) lead(id uint32) {
	s.k.t.Helper()
	a := s.do(cmAttr, cmRequest{object: id})
	if a.known != 1 || a.mtu != 1024 && a.mtu != 2048 && a.mtu != 4096 {
		s.k.t.Fatalf("attributes %+v", a)
	}
	for state := uint32(1); state <= 3; state++ {
		s.k.must(request{
			op: uint32(opModifyQP), object: s.qp, state: state, access: a.access, mtu: a.mtu, destQP: a.destQP, gid: a.remote.addr,
			recvPSN: a.recvPSN, sendPSN: a.sendPSN, maxDestReads: a.maxDestRead, maxReads: a.maxRead, rnrTimer: a.rnrTimer, timeout: a.timeout,
			retries: a.retries, rnrRetries: a.rnrRetries,
		})
	}
}

// join connects two sides.
func join(x, y *cmSide) (idX, idY, listener uint32) {
	x.k.t.Helper()
	listener, p := y.listen()
	idX = x.route(p)
	x.do(cmConnect, cmRequest{object: idX, connection: x.param("question")})
	r := y.event(cmEventRequest)
	if r.listener != listener || r.connection.qpn != x.qpn || !strings.HasPrefix(string(r.connection.private[:]), "question\x00") {
		x.k.t.Fatalf("request %+v", r)
	}
	if c := &r.connection; c.resources != 2 || c.depth != 3 || c.privateLen != 56 { // as the receiver sees it
		x.k.t.Errorf("request %+v", c)
	}
	idY = r.object
	y.lead(idY)
	y.do(cmAccept, cmRequest{object: idY, connection: y.param("answer")})
	r = x.event(cmEventResponse)
	if r.object != idX || r.connection.qpn != y.qpn || !strings.HasPrefix(string(r.connection.private[:]), "answer\x00") {
		x.k.t.Fatalf("response %+v", r)
	}
	x.lead(idX)
	x.do(cmEstablish, cmRequest{object: idX})
	y.event(cmEventEstablished)
	return idX, idY, listener
}

// TestConnectionsOfPrograms connects the queue pairs of two programs, moves bytes, and ends the connection.
func TestConnectionsOfPrograms(t *testing.T) {
	s := openServer(t, Config{})
	x, y := newCMSide(newClient(t, s)), newCMSide(newClient(t, s))
	idX, idY, _ := join(x, y)
	fill(x.mr.b[:3000], 7)
	x.k.postSend(x.qp, send{
		op: uint8(transport.OpWrite), flags: uint8(transport.Signaled), remote: y.mr.addr(0), rkey: y.mr.key, elements: 1,
		list: [sendElements]element{x.mr.element(0, 3000)},
	}, nil)
	if c := x.k.next(x.cq); c.status != 0 || !bytes.Equal(x.mr.b[:3000], y.mr.b[:3000]) {
		t.Errorf("%+v", c)
	}
	y.do(cmDisconnect, cmRequest{object: idY})
	x.event(cmEventDisconnected)
	y.event(cmEventDisconnected)
	x.do(cmDisconnect, cmRequest{object: idX}) // the peer was first
	if r := x.event(cmEventTimeWaitExit); r.object != idX {
		t.Errorf("%+v", r)
	}
	y.event(cmEventTimeWaitExit)
	if r := x.do(cmDestroyID, cmRequest{object: idX}); r.reported != 5 || r.removed != 0 {
		t.Errorf("%d events reported and %d removed", r.reported, r.removed)
	}
	x.fails(syscall.EINVAL, cmAttr, cmRequest{object: idX})
	x.do(cmDestroyChannel, cmRequest{channel: x.channel})
	x.fails(syscall.EINVAL, cmGetEvent, cmRequest{channel: x.channel})
	y.fails(syscall.EBUSY, cmDestroyChannel, cmRequest{channel: y.channel})
}

// TestRejections has programs, and listeners that end, refuse requests.
func TestRejections(t *testing.T) {
	s := openServer(t, Config{})
	x, y := newCMSide(newClient(t, s)), newCMSide(newClient(t, s))
	listener, p := y.listen()
	ask := func() uint32 {
		id := x.route(p)
		x.do(cmConnect, cmRequest{object: id, connection: x.param("")})
		return id
	}
	ask()
	r := y.event(cmEventRequest)
	y.do(cmReject, cmRequest{object: r.object, connection: y.param("no")})
	if r := x.event(cmEventRejected); r.status != int32(cm.RejConsumer) || r.connection.private[0] != 'n' {
		t.Errorf("%+v", r)
	}
	y.fails(syscall.EINVAL, cmAccept, cmRequest{object: r.object, connection: y.param("")})

	ask()
	y.k.await("the request", func() bool { // and the program does not take it
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(y.fd), Events: unix.POLLIN}}, 100)
		return n == 1
	})
	if r := y.do(cmDestroyID, cmRequest{object: listener}); r.removed != 1 || r.reported != 1 {
		t.Errorf("%d events removed, %d reported", r.removed, r.reported)
	}
	if r := x.event(cmEventRejected); r.status != int32(cm.RejConsumer) {
		t.Errorf("%+v", r)
	}
	ask()
	if r := x.event(cmEventRejected); r.status != int32(cm.RejInvalidServiceID) {
		t.Errorf("nothing listens: %+v", r)
	}
}

// TestProgramWithConnectionsEnds has programs end: their connections end, and their ports are free.
func TestProgramWithConnectionsEnds(t *testing.T) {
	s := openServer(t, Config{})
	x, y := newCMSide(newClient(t, s)), newCMSide(newClient(t, s))
	_, idY, listener := join(x, y)
	p := y.do(cmAttr, cmRequest{object: listener}).local.port
	y.k.c.Close()
	if r := x.event(cmEventDisconnected); r.status != 0 {
		t.Errorf("%+v", r)
	}
	x.k.await("the end of the program", func() bool { return s.Stats().Programs == 1 })
	z := newCMSide(newClient(t, s))
	id := z.newID()
	z.do(cmBind, cmRequest{object: id, local: port(p)})
	z.do(cmListen, cmRequest{object: id})
	z.fails(syscall.EINVAL, cmDisconnect, cmRequest{object: idY})
	x.k.c.Close()
	z.k.c.Close()
	z.k.await("the end of all programs", func() bool { return s.Stats().Programs == 0 })
	_ = s.cfg.Context.CM(func(_ clock.Time, m *cm.Manager) error {
		if len(s.ports) != 0 || m.HalfOpen() != 0 {
			t.Errorf("%d ports are bound, and %d connections half-open", len(s.ports), m.HalfOpen())
		}
		return nil
	})
}

// TestIdentifierStates checks what each state takes.
func TestIdentifierStates(t *testing.T) {
	s := openServer(t, Config{})
	x := newCMSide(newClient(t, s))
	listener, p := x.listen()
	resolve := cmRequest{local: port(0), remote: port(p), timeout: 1000}
	states := map[string]func() uint32{
		"idle":      x.newID,
		"bound":     func() uint32 { id := x.newID(); x.do(cmBind, cmRequest{object: id, local: port(0)}); return id },
		"listening": func() uint32 { return listener },
		"routed":    func() uint32 { return x.route(p) },
		"resolved": func() uint32 {
			q := resolve
			q.object = x.newID()
			x.do(cmResolve, q)
			x.event(cmEventAddrResolved)
			return q.object
		},
	}
	taken := map[string][]op{
		"idle":      {cmBind, cmResolve, cmListen, cmSetOption},
		"bound":     {cmResolve, cmListen},
		"listening": {},
		"resolved":  {cmResolveRoute},
		"routed":    {cmConnect},
	}
	for name, make := range states {
		for o := cmBind; o <= cmSetOption; o++ {
			q := resolve
			q.op, q.object, q.connection, q.option = uint32(o), make(), x.param(""), optionReuse
			_, _, err := x.k.manage(q)
			if want := slices.Contains(taken[name], o); (err == nil) != want {
				t.Errorf("%s, operation %d: %v", name, o, err)
			}
			if name != "listening" {
				r := x.do(cmDestroyID, cmRequest{object: q.object})
				for range r.removed {
					_, _ = unix.Read(x.fd, []byte{0})
				}
			}
			if o == cmConnect && err == nil { // the listener gets the request, and its end
				x.do(cmDestroyID, cmRequest{object: x.event(cmEventRequest).object})
			}
		}
	}
}

// TestPortsOfPrograms binds ports that are taken, shared, privileged and of other hosts.
func TestPortsOfPrograms(t *testing.T) {
	s := openServer(t, Config{})
	x, y := newCMSide(newClient(t, s)), newCMSide(newClient(t, s))
	a, b, c := x.newID(), y.newID(), y.newID()
	x.do(cmBind, cmRequest{object: a, local: port(7174)})
	y.fails(syscall.EADDRINUSE, cmBind, cmRequest{object: b, local: port(7174)})
	y.fails(syscall.EADDRNOTAVAIL, cmBind, cmRequest{object: b, local: endpoint{addr: [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1}}})
	udp := y.do(cmCreateID, cmRequest{channel: y.channel, space: 0x111, service: typeUD}).object
	y.do(cmBind, cmRequest{object: udp, local: port(7174)})
	y.fails(syscall.EPROTONOSUPPORT, cmCreateID, cmRequest{channel: y.channel, space: 0x13f, service: typeRC})
	for _, id := range []uint32{b, c} {
		y.do(cmSetOption, cmRequest{object: id, option: optionReuse, value: 1})
		y.do(cmBind, cmRequest{object: id, local: port(7175)})
	}
	y.do(cmListen, cmRequest{object: b})
	y.fails(syscall.EADDRINUSE, cmListen, cmRequest{object: c})
	y.do(cmDestroyID, cmRequest{object: b})
	y.do(cmListen, cmRequest{object: c})
	d := x.newID()
	x.fails(syscall.EADDRINUSE, cmBind, cmRequest{object: d, local: port(7175)})
	x.do(cmDestroyID, cmRequest{object: a})
	x.do(cmBind, cmRequest{object: d, local: port(7174)})

	p := &program{s: s, cred: &unix.Ucred{Uid: 4242}}
	o := &cmID{p: p, space: cm.SpaceTCP}
	if err := o.take(&endpoint{port: 1023, any: 1}); !errors.Is(err, syscall.EACCES) {
		t.Errorf("another user has a privileged port: %v", err)
	}
	few := ports{}
	for range lastEphemeral - firstEphemeral + 1 {
		if n, err := few.bind(cm.SpaceTCP, 0, false); err != nil || n < firstEphemeral || n > lastEphemeral {
			t.Fatalf("port %d: %v", n, err)
		}
	}
	if _, err := few.bind(cm.SpaceTCP, 0, false); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("no port is free: %v", err)
	}
}

// TestUnknownPeer resolves an address without a route.
func TestUnknownPeer(t *testing.T) {
	s := openServer(t, Config{})
	x := newCMSide(newClient(t, s))
	id := x.newID()
	q := cmRequest{object: id, local: port(0), remote: endpoint{addr: [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1}, port: 1}, timeout: 50}
	for range 3 { // an identifier may try again
		x.do(cmResolve, q)
		if r := x.event(cmEventAddrError); r.status >= 0 || r.object != id {
			t.Errorf("%+v", r)
		}
	}
	x.do(cmResolve, q) // its result finds no identifier
	x.do(cmDestroyID, cmRequest{object: id})
}

// TestMigration moves an identifier with an event to another channel.
func TestMigration(t *testing.T) {
	s := openServer(t, Config{})
	x := newCMSide(newClient(t, s))
	listener, p := x.listen()
	id := x.route(p)
	x.do(cmConnect, cmRequest{object: id, connection: x.param("")})
	x.k.await("the request", func() bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(x.fd), Events: unix.POLLIN}}, 100)
		return n == 1
	})
	other, fd := x.newChannel()
	if r := x.do(cmMigrate, cmRequest{object: listener, channel: other}); r.removed != 1 {
		t.Errorf("%d events moved", r.removed)
	}
	if r := x.do(cmGetEvent, cmRequest{channel: x.channel}); r.object != none {
		t.Errorf("an event stays: %+v", r)
	}
	r := x.eventOn(other, fd, cmEventRequest)
	x.do(cmReject, cmRequest{object: r.object})
	_, _ = unix.Read(x.fd, []byte{0}) // of the event that has moved
	x.event(cmEventRejected)
	x.do(cmDestroyID, cmRequest{object: r.object})
	x.do(cmDestroyID, cmRequest{object: listener})
	x.do(cmDestroyChannel, cmRequest{channel: other})
}

// TestForeignQueuePairs connects queue pairs that the user does not have.
func TestForeignQueuePairs(t *testing.T) {
	s := openServer(t, Config{})
	x, y := newCMSide(newClient(t, s)), newCMSide(newClient(t, s))
	_, p := x.listen()
	id := x.route(p)
	q := cmRequest{object: id, connection: x.param("")}
	q.connection.qpn ^= 1
	x.fails(syscall.EINVAL, cmConnect, q)
	q.connection.qpn = y.qpn // of another program of the same user
	x.do(cmConnect, q)
	_ = s.cfg.Context.CM(func(clock.Time, *cm.Manager) error {
		if s.hasQP(4242, x.qpn) || !s.hasQP(x.k.uid(s), x.qpn) {
			t.Error("queue pairs are those of other users")
		}
		return nil
	})
}

// uid returns the user of the programs.
func (k *client) uid(s *Server) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.programs {
		return p.cred.Uid
	}
	return none
}

// TestLimitsOfIdentifiers has a program make identifiers and channels without end.
func TestLimitsOfIdentifiers(t *testing.T) {
	s := openServer(t, Config{})
	x := newCMSide(newClient(t, s))
	for range mostIDs {
		x.newID()
	}
	x.fails(syscall.ENOMEM, cmCreateID, cmRequest{channel: x.channel, space: 0x106, service: typeRC})
	y := newCMSide(newClient(t, s)) // and others are not affected
	_, p := y.listen()
	y.route(p)
}

// TestHostileManagement ends programs whose requests to the connection manager no library makes.
func TestHostileManagement(t *testing.T) {
	s := openServer(t, Config{})
	honest := newClient(t, s)
	good := cmRequest{version: Version, op: uint32(cmCreateChannel)}
	long, old := good, good
	long.connection.privateLen = cmPrivate + 1
	old.version = Version - 1
	bytesOf := func(q *cmRequest) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(q)), cmRequestSize) }
	list := [][]byte{bytesOf(&good)[:cmRequestSize-1], append(bytesOf(&good), 0), bytesOf(&long), bytesOf(&old)}
	for i, b := range list {
		k := newClient(t, s)
		if _, err := k.c.Write(b); err != nil {
			t.Fatal(err)
		}
		ended(t, s, honest, 1, uint64(i+1))
	}
	if _, _, err := dial(t, s).manage(good); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("a request before HELLO: %v", err)
	}
	ended(t, s, honest, 1, uint64(len(list)+1))
}

// FuzzManagement sends requests of any content to the connection manager. Nothing of the program stays.
func FuzzManagement(f *testing.F) {
	for _, q := range []cmRequest{
		{op: uint32(cmListen)},
		{op: uint32(cmResolve), local: port(0), remote: port(7), timeout: 1},
		{op: uint32(cmConnect), object: 1},
		{op: uint32(cmMigrate), channel: 1},
	} {
		q.version = Version
		f.Add(slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&q)), cmRequestSize)))
	}
	s := openServer(f, Config{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k := newClient(t, s)
		x := newCMSide(k)
		x.newChannel()
		listener, p := x.listen()
		ids := []uint32{x.newID(), listener, x.route(p)}
		for count := 0; len(b) > 0 && count < 32; count++ {
			var q cmRequest
			b = b[copy(unsafe.Slice((*byte)(unsafe.Pointer(&q)), cmRequestSize), b):]
			q.op = uint32(cmCreateChannel) + q.op%uint32(cmOpsEnd-cmCreateChannel)
			q.object, q.channel = ids[q.object%3]+q.object>>30, q.channel%3
			q.timeout %= 100
			q.connection.privateLen %= cmPrivate + 1
			if q.connection.qpn%2 == 0 {
				q.connection.qpn = x.qpn
			}
			_, fds, _ := k.manage(q)
			closeAll(fds)
		}
		k.c.Close()
		k.await("the end of the program", func() bool { return s.Stats().Programs == 0 })
		_ = s.cfg.Context.CM(func(_ clock.Time, m *cm.Manager) error {
			if len(s.ports) != 0 || m.HalfOpen() != 0 {
				t.Errorf("%d ports are bound, and %d connections half-open", len(s.ports), m.HalfOpen())
			}
			return nil
		})
	})
}

// TestDatagramsOfPrograms has a program ask for the queue pair of a service, once in vain.
func TestDatagramsOfPrograms(t *testing.T) {
	s := openServer(t, Config{})
	x, y := newCMSide(newClient(t, s)), newCMSide(newClient(t, s))
	newID := func(s *cmSide) uint32 {
		return s.do(cmCreateID, cmRequest{channel: s.channel, space: 0x111, service: typeUD}).object
	}
	listener := newID(y)
	p := y.do(cmListen, cmRequest{object: listener}).local.port
	for _, refuse := range []bool{true, false} {
		id := newID(x)
		x.do(cmResolve, cmRequest{object: id, local: port(0), remote: port(p), timeout: 1000})
		x.event(cmEventAddrResolved)
		x.do(cmResolveRoute, cmRequest{object: id})
		x.event(cmEventRouteResolved)
		x.do(cmConnect, cmRequest{object: id, connection: x.param("who")})
		r := y.event(cmEventRequest)
		if string(r.connection.private[:4]) != "who\x00" || r.remote.addr != x.k.hello.gid {
			t.Errorf("%+v", r)
		}
		if refuse {
			y.do(cmReject, cmRequest{object: r.object})
			if e := x.event(cmEventUnreachable); e.status != int32(cm.SIDRRejected) {
				t.Errorf("%+v", e)
			}
			continue
		}
		c := y.param("me")
		c.qkey = 0x1234567
		y.do(cmAccept, cmRequest{object: r.object, connection: c})
		if e := x.event(cmEventEstablished); e.connection.qpn != y.qpn || e.connection.qkey != 0x1234567 || string(e.connection.private[:2]) != "me" {
			t.Errorf("%+v", e)
		}
		x.do(cmDisconnect, cmRequest{object: id}) // there is nothing to end
		x.do(cmDestroyID, cmRequest{object: id})
	}
}
