package virtio

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd/virtio/vhostuser"
	"github.com/millrace/millrace/pmd/virtio/vring"
)

// session is one connection of a front end: what it has negotiated, its memory and its rings. It belongs to the goroutine of the
// link. The rings that run are those of the queues, under their locks.
type session struct {
	b        *Backend
	conn     *vhostuser.Conn
	features uint64
	protocol uint64
	status   uint64
	maps     []*mapping
	memory   *vring.Memory
	spans    []span
	rings    []*backRing // 2i: packets to the driver of pair i; 2i+1: from it
}

func newSession(b *Backend, conn *vhostuser.Conn) *session {
	s := &session{b: b, conn: conn, rings: make([]*backRing, 2*len(b.Queues))}
	for i := range s.rings {
		s.rings[i] = &backRing{kick: -1, call: -1}
	}
	s.memory, s.spans, _ = guestMemory(nil)
	return s
}

// offered returns the features of the device.
func (s *session) offered() uint64 { return featuresRing | featuresToDevice | featuresToDriver }

// protocolOffered are the protocol features of the device.
const protocolOffered = vhostuser.FeatureMQ | vhostuser.FeatureReplyAck | vhostuser.FeatureNetMTU | vhostuser.FeatureResetDevice |
	vhostuser.FeatureConfigureMemSlots | vhostuser.FeatureStatus

// maxMemSlots is the answer to GET_MAX_MEM_SLOTS.
const maxMemSlots = vring.MaxRegions

// handler handles a request, and returns the payload of its reply; nil has none.
type handler func(s *session, m *vhostuser.Message) ([]byte, error)

var handlers = map[vhostuser.Request]handler{
	vhostuser.GetFeatures: func(s *session, _ *vhostuser.Message) ([]byte, error) { return vhostuser.U64Payload(s.offered()), nil },
	vhostuser.SetFeatures: number((*session).setFeatures),
	vhostuser.SetOwner:    func(*session, *vhostuser.Message) ([]byte, error) { return nil, nil },
	vhostuser.ResetOwner:  (*session).reset,
	vhostuser.ResetDevice: (*session).reset,
	vhostuser.GetProtocolFeatures: func(*session, *vhostuser.Message) ([]byte, error) {
		return vhostuser.U64Payload(protocolOffered), nil
	},
	vhostuser.SetProtocolFeatures: number((*session).setProtocol),
	vhostuser.GetQueueNum: func(s *session, _ *vhostuser.Message) ([]byte, error) {
		return vhostuser.U64Payload(uint64(len(s.b.Queues))), nil
	},
	vhostuser.GetMaxMemSlots: func(*session, *vhostuser.Message) ([]byte, error) { return vhostuser.U64Payload(maxMemSlots), nil },
	vhostuser.SetMemTable:    (*session).setMemTable,
	vhostuser.AddMemReg:      (*session).addMemReg,
	vhostuser.RemMemReg:      (*session).remMemReg,
	vhostuser.SetVringNum:    state((*session).setNum),
	vhostuser.SetVringBase:   state((*session).setBase),
	vhostuser.GetVringBase:   state((*session).getBase),
	vhostuser.SetVringEnable: state((*session).setEnable),
	vhostuser.SetVringAddr:   (*session).setAddr,
	vhostuser.SetVringKick:   (*session).setFile,
	vhostuser.SetVringCall:   (*session).setFile,
	vhostuser.SetVringErr:    (*session).setFile,
	vhostuser.NetSetMTU:      number((*session).setMTU),
	vhostuser.SetStatus:      number(func(s *session, v uint64) error { s.status = v; return nil }),
	vhostuser.GetStatus:      func(s *session, _ *vhostuser.Message) ([]byte, error) { return vhostuser.U64Payload(s.status), nil },
	vhostuser.SendRARP:       func(*session, *vhostuser.Message) ([]byte, error) { return nil, nil }, // neighbours learn the guest's address from its packets
}

// number makes a handler of a function of one number.
func number(f func(*session, uint64) error) handler {
	return func(s *session, m *vhostuser.Message) ([]byte, error) {
		v, err := m.U64()
		if err != nil {
			return nil, err
		}
		return nil, f(s, v)
	}
}

// state makes a handler of a function of a number about a ring.
func state(f func(s *session, i int, r *backRing, v uint32) ([]byte, error)) handler {
	return func(s *session, m *vhostuser.Message) ([]byte, error) {
		v, err := m.VringState()
		if err != nil {
			return nil, err
		}
		r, err := s.ring(uint64(v.Index))
		if err != nil {
			return nil, err
		}
		return f(s, int(v.Index), r, v.Num)
	}
}

func (s *session) ring(i uint64) (*backRing, error) {
	if i >= uint64(len(s.rings)) {
		return nil, fmt.Errorf("%w: ring %d, and the device has %d", vhostuser.ErrProtocol, i, len(s.rings))
	}
	return s.rings[i], nil
}

// run handles messages until the connection ends.
func (s *session) run() error {
	for {
		m, err := s.conn.Recv()
		if err != nil {
			return err
		}
		err = s.handle(m)
		m.CloseFDs()
		if err != nil {
			return err
		}
	}
}

// errUnknown is the error of a request that this back end does not have. The front end may go on without it.
var errUnknown = errors.New("request is not supported")

// handle handles a message and answers it. An error ends the connection, after the front end has learnt of it.
func (s *session) handle(m *vhostuser.Message) error {
	h := handlers[m.Request]
	reply, err := []byte(nil), errUnknown
	if h != nil {
		reply, err = h(s, m)
	}
	if reply == nil && m.NeedReply && s.protocol&vhostuser.FeatureReplyAck != 0 {
		code := uint64(0)
		if err != nil {
			code = 1
		}
		reply = vhostuser.U64Payload(code)
	}
	if errors.Is(err, errUnknown) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%v: %w", m.Request, err)
	}
	if reply == nil {
		return err
	}
	return errors.Join(err, s.conn.Send(&vhostuser.Message{Request: m.Request, Reply: true, Payload: reply}))
}

// end stops the rings and gives the memory and the files of the front end back.
func (s *session) end(error) {
	s.locked(func() {
		for i := range s.rings {
			s.stop(i)
		}
	})
	for _, m := range s.maps {
		m.unmap()
	}
	for _, r := range s.rings {
		r.closeFiles()
	}
}

// locked runs f while no loop is in a queue.
func (s *session) locked(f func()) {
	for _, q := range s.b.Queues {
		q.mu.Lock()
	}
	f()
	for _, q := range s.b.Queues {
		q.mu.Unlock()
	}
}

// stop takes ring i away from its queue, and keeps where it was. The queue is locked.
func (s *session) stop(i int) {
	r := s.rings[i]
	if d := s.b.Queues[i/2].detach(i % 2); d != nil {
		r.base, r.use = d.Base()
	}
}

// start gives ring i to its queue where it may run. The queue is locked.
func (s *session) start(i int) error {
	r := s.rings[i]
	if r.state != ringRunning || !r.placed || r.size == 0 || len(s.maps) == 0 {
		return nil
	}
	d, err := vring.NewDevice(vring.Config{
		Size: r.size, Packed: s.features&featurePacked != 0, EventIdx: s.features&featureEventIdx != 0, Indirect: s.features&featureIndirect != 0,
		Memory: s.memory, Desc: r.addr.Desc, Avail: r.addr.Avail, Used: r.addr.Used, NextAvail: r.base, NextUse: r.use,
		Resume: r.fresh,
	})
	if err != nil {
		return fmt.Errorf("%w: ring %d: %w", ErrGuest, i, err)
	}
	r.fresh = false
	s.b.Queues[i/2].attach(i%2, d, s, r)
	return nil
}

// change runs f while no ring runs, and starts those again that may run after it.
func (s *session) change(f func() error) (err error) {
	s.locked(func() {
		for i := range s.rings {
			s.stop(i)
		}
		err = f()
		for i := range s.rings {
			if err == nil {
				err = s.start(i)
			}
		}
	})
	return err
}

// changeRing is change for one ring.
func (s *session) changeRing(i int, f func()) (err error) {
	q := s.b.Queues[i/2]
	q.mu.Lock()
	defer q.mu.Unlock()
	s.stop(i)
	f()
	return s.start(i)
}

func (s *session) setFeatures(v uint64) error {
	if unknown := v &^ s.offered(); unknown != 0 {
		return fmt.Errorf("%w: %#x was not offered", ErrFeatures, unknown)
	}
	return s.change(func() error {
		s.features = v
		if v&featureProtocol == 0 { // rings have no other way to be enabled
			for _, r := range s.rings {
				r.state = ringNext[r.state][ringEnable]
			}
		}
		return nil
	})
}

func (s *session) setProtocol(v uint64) error {
	if unknown := v &^ protocolOffered; unknown != 0 {
		return fmt.Errorf("%w: protocol features %#x were not offered", ErrFeatures, unknown)
	}
	s.protocol = v
	return nil
}

// reset stops and disables all rings.
func (s *session) reset(*vhostuser.Message) ([]byte, error) {
	return nil, s.change(func() error {
		for _, r := range s.rings {
			r.closeFiles()
			*r = backRing{kick: -1, call: -1}
		}
		return nil
	})
}

func (s *session) setMTU(v uint64) error {
	if v < 68 || v > uint64(s.b.cfg.MTU) {
		return fmt.Errorf("%w: the front end's MTU is %d, and this end takes up to %d", ErrFeatures, v, s.b.cfg.MTU)
	}
	return nil
}

// setNum takes the size of a ring.
func (s *session) setNum(i int, r *backRing, v uint32) ([]byte, error) {
	if r.state.started() {
		return nil, fmt.Errorf("%w: the size of ring %d, which is started", vhostuser.ErrProtocol, i)
	}
	if v == 0 || v > vring.MaxSize {
		return nil, fmt.Errorf("%w: ring %d has size %d", vhostuser.ErrProtocol, i, v)
	}
	r.size = int(v)
	return nil, nil
}

func (s *session) setBase(i int, r *backRing, v uint32) ([]byte, error) {
	if r.state.started() {
		return nil, fmt.Errorf("%w: the base of ring %d, which is started", vhostuser.ErrProtocol, i)
	}
	r.setBase(v, s.features&featurePacked != 0)
	return nil, nil
}

// getBase stops a ring.
func (s *session) getBase(i int, r *backRing, _ uint32) ([]byte, error) {
	err := s.changeRing(i, func() { r.state = ringNext[r.state][ringStop] })
	s.b.Queues[i/2].watch(i%2, r.kick, -1)
	r.closeFiles()
	return vhostuser.VringState{Index: uint32(i), Num: r.baseValue(s.features&featurePacked != 0)}.Append(nil), err
}

func (s *session) setEnable(i int, r *backRing, v uint32) ([]byte, error) {
	event := ringDisable
	if v != 0 {
		event = ringEnable
	}
	return nil, s.changeRing(i, func() { r.state = ringNext[r.state][event] })
}

func (s *session) setAddr(m *vhostuser.Message) ([]byte, error) {
	a, err := m.VringAddr()
	if err != nil {
		return nil, err
	}
	r, err := s.ring(uint64(a.Index))
	if err != nil {
		return nil, err
	}
	if a.Flags&vhostuser.VringLog != 0 {
		return nil, fmt.Errorf("%w: the log of dirty pages was not offered", vhostuser.ErrProtocol)
	}
	return nil, s.changeRing(int(a.Index), func() { r.addr, r.placed = a, true })
}

// setFile takes a notification file: the kick of a ring starts it. That for errors is not used, since errors end the connection.
func (s *session) setFile(m *vhostuser.Message) ([]byte, error) {
	f, err := m.VringFD()
	if err != nil {
		return nil, err
	}
	r, err := s.ring(uint64(f.Index))
	if err != nil || m.Request == vhostuser.SetVringErr {
		return nil, err
	}
	if f.FD >= 0 {
		if err := checkEventfd(f.FD); err != nil {
			return nil, fmt.Errorf("%w: ring %d: %w", vhostuser.ErrProtocol, f.Index, err)
		}
		m.FDs[0] = -1 // ours now
	}
	if m.Request == vhostuser.SetVringCall {
		err = s.changeRing(f.Index, func() { replace(&r.call, f.FD) })
		return nil, err
	}
	s.b.Queues[f.Index/2].watch(f.Index%2, r.kick, f.FD)
	return nil, s.changeRing(f.Index, func() {
		replace(&r.kick, f.FD)
		r.state = ringNext[r.state][ringKick]
	})
}

// replace closes the file that *to has, and puts fd in its place.
func replace(to *int, fd int) {
	if *to >= 0 {
		_ = unix.Close(*to)
	}
	*to = fd
}

// setMemTable replaces the guest's memory. Rings that run go on at the same place.
func (s *session) setMemTable(m *vhostuser.Message) ([]byte, error) {
	list, err := m.MemTable()
	if err != nil {
		return nil, err
	}
	var maps []*mapping
	for i, r := range list {
		one, err := mapRegion(m.FDs[i], r)
		if err != nil {
			unmapAll(maps)
			return nil, err
		}
		maps = append(maps, one)
	}
	return nil, s.remap(maps)
}

func unmapAll(maps []*mapping) {
	for _, m := range maps {
		m.unmap()
	}
}

// remap makes maps the guest's memory, and unmaps what is not in it any more. It takes the mappings.
func (s *session) remap(maps []*mapping) error {
	kept := map[*mapping]bool{}
	for _, m := range maps {
		kept[m] = true
	}
	old := s.maps
	err := s.change(func() error {
		mem, spans, err := guestMemory(maps)
		s.maps = maps
		if err != nil { // the connection ends
			return err
		}
		s.memory, s.spans = mem, spans
		return nil
	})
	for _, m := range old {
		if !kept[m] {
			m.unmap()
		}
	}
	return err
}

// addMemReg adds a region (FeatureConfigureMemSlots).
func (s *session) addMemReg(m *vhostuser.Message) ([]byte, error) {
	r, err := m.MemReg()
	if err != nil {
		return nil, err
	}
	if len(m.FDs) != 1 || len(s.maps) >= maxMemSlots {
		return nil, fmt.Errorf("%w: a region with %d file descriptors beside %d regions", vhostuser.ErrProtocol, len(m.FDs), len(s.maps))
	}
	one, err := mapRegion(m.FDs[0], r)
	if err != nil {
		return nil, err
	}
	return nil, s.remap(append(s.maps[:len(s.maps):len(s.maps)], one))
}

// remMemReg removes the region with the same addresses.
func (s *session) remMemReg(m *vhostuser.Message) ([]byte, error) {
	r, err := m.MemReg()
	if err != nil {
		return nil, err
	}
	for i, have := range s.maps {
		if h := have.region; h.Guest == r.Guest && h.User == r.User && h.Size == r.Size {
			return nil, s.remap(append(s.maps[:i:i], s.maps[i+1:]...))
		}
	}
	return nil, fmt.Errorf("%w: no region at %#x", vhostuser.ErrProtocol, r.Guest)
}
