package virtio

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio/vhostuser"
	"github.com/millrace/millrace/pmd/virtio/vring"
)

// Frontend is the driver's end of a device that a back end serves (virtio-user). It shares its arena and the memory of its rings
// with the back end, which reads and writes frames without a copy on this side.
type Frontend struct {
	Queues []*FrontendQueue // in the order of Config.Pools; each belongs to one loop

	cfg     Config
	offload atomic.Bool // pass large packets whole
	closing atomic.Bool
	rings   shared
	link    link
}

// Guest physical addresses of the two regions, which are user addresses as well: names that mean something in descriptors only.
const (
	arenaBase = 1 << 32
	ringsBase = 1 << 40
)

// OpenFrontend opens the socket, and connects from then on. It borrows the pools until Close.
func OpenFrontend(cfg Config) (*Frontend, error) {
	cfg.frontend = true
	if err := cfg.check(); err != nil {
		return nil, cfg.fail("open", 0, err, "")
	}
	if cfg.Pools[0].Arena().File() < 0 {
		return nil, cfg.fail("open", 0, ErrArena, "make it with ring.ArenaConfig.Shared")
	}
	f := &Frontend{cfg: cfg, rings: shared{file: -1}}
	each := ringBytes(cfg.Ring)
	if err := f.rings.open(2 * len(cfg.Pools) * each); err != nil {
		return nil, cfg.fail("open", 0, err, "")
	}
	for i, pool := range cfg.Pools {
		q := &FrontendQueue{dev: f, id: i, pool: pool, mem: pool.Arena().View()}
		for dir := range q.place {
			q.place[dir] = f.rings.mem[(2*i+dir)*each:][:each]
		}
		text := "not connected"
		q.modes.Store(&text)
		f.Queues = append(f.Queues, q)
		if err := q.open(); err != nil {
			return nil, errors.Join(cfg.fail("open", i, err, ""), f.Close())
		}
	}
	if err := f.link.open(&f.cfg, f.serve); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ringBytes returns the bytes of one ring and the headers of its packets. The parts of a split ring are the larger ones.
func ringBytes(size int) int {
	desc, avail, used := vring.Layout(size, false)
	return desc + avail + used + size*headerSlot
}

// headerSlot is the room for a header that does not fit in front of its packet, bytes.
const headerSlot = 16

// shared is memory for rings in a file.
type shared struct {
	file int
	mem  []byte
}

func (s *shared) open(n int) (err error) {
	n = (n + 4095) &^ 4095
	if s.file, err = unix.MemfdCreate("millrace-rings", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return err
	}
	if err = unix.Ftruncate(s.file, int64(n)); err == nil {
		_, err = unix.FcntlInt(uintptr(s.file), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		s.mem, err = unix.Mmap(s.file, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	return err
}

func (s *shared) close() {
	if s.mem != nil {
		_ = unix.Munmap(s.mem)
		s.mem = nil
	}
	if s.file >= 0 {
		_ = unix.Close(s.file)
		s.file = -1
	}
}

// serve negotiates with a back end, and gives the rings to the queues until it goes.
func (f *Frontend) serve(conn *vhostuser.Conn) error {
	h := &handshake{f: f, conn: conn}
	err := h.run()
	if err == nil {
		for err == nil {
			var m *vhostuser.Message
			if m, err = conn.Recv(); err == nil { // nothing is expected
				m.CloseFDs()
			}
		}
		if f.closing.Load() {
			err = errors.Join(err, h.stop())
		}
	}
	for _, q := range f.Queues {
		q.detach()
	}
	return err
}

// SetOffload makes the device pass large packets whole, or segment them, as Backend.SetOffload does.
func (f *Frontend) SetOffload(on bool) error {
	f.offload.Store(on)
	return nil
}

// stop ends the connection for ever, and has the back end stop the rings before, so that it writes to no frame afterwards.
func (f *Frontend) stop() error {
	f.closing.Store(true)
	return f.link.close(true)
}

// Close stops the device and returns the frames of all queues to their pools, so their loops must not run.
func (f *Frontend) Close() error {
	err := f.stop()
	for _, q := range f.Queues {
		err = errors.Join(err, q.Close())
	}
	f.rings.close()
	return err
}

// handshake negotiates one connection.
type handshake struct {
	f        *Frontend
	conn     *vhostuser.Conn
	features uint64
	protocol uint64
}

// run connects all rings.
func (h *handshake) run() error {
	if err := h.negotiate(); err != nil {
		return err
	}
	for _, q := range h.f.Queues {
		if err := q.prepare(h.features); err != nil {
			return err
		}
		for dir := range q.place {
			if err := h.startRing(q, dir); err != nil {
				return err
			}
		}
	}
	for _, q := range h.f.Queues {
		q.attach(h.features)
	}
	return nil
}

// negotiate settles features and shares the memory.
func (h *handshake) negotiate() error {
	if err := h.send(&vhostuser.Message{Request: vhostuser.SetOwner}); err != nil {
		return err
	}
	offered, err := h.ask(vhostuser.GetFeatures)
	if err != nil {
		return err
	}
	h.features = offered & (featureVersion1 | featureMrgRxbuf | featureEventIdx | featureMQ | featureProtocol | featuresToDevice | featuresToDriver)
	if h.f.cfg.Packed {
		h.features |= offered & featurePacked
	}
	if h.features&featureVersion1 == 0 {
		return fmt.Errorf("%w: the back end is older than virtio 1.0 (features %#x)", ErrFeatures, offered)
	}
	if h.features&featureProtocol != 0 {
		p, err := h.ask(vhostuser.GetProtocolFeatures)
		if err != nil {
			return err
		}
		h.protocol = p & (vhostuser.FeatureMQ | vhostuser.FeatureReplyAck)
		if err := h.number(vhostuser.SetProtocolFeatures, h.protocol); err != nil {
			return err
		}
	}
	if err := h.checkQueues(); err != nil {
		return err
	}
	if err := h.number(vhostuser.SetFeatures, h.features); err != nil {
		return err
	}
	arena := h.f.cfg.Pools[0].Arena()
	return h.acknowledged(&vhostuser.Message{
		Request: vhostuser.SetMemTable, FDs: []int{arena.File(), h.f.rings.file},
		Payload: vhostuser.MemTablePayload([]vhostuser.MemRegion{
			{Guest: arenaBase, User: arenaBase, Size: uint64(len(arena.Mem))},
			{Guest: ringsBase, User: ringsBase, Size: uint64(len(h.f.rings.mem))},
		}),
	})
}

// checkQueues compares the number of queues with that of the back end.
func (h *handshake) checkQueues() error {
	want := len(h.f.Queues)
	if want == 1 {
		h.features &^= featureMQ
		return nil
	}
	have := uint64(1)
	if h.features&featureMQ != 0 && h.protocol&vhostuser.FeatureMQ != 0 {
		var err error
		if have, err = h.ask(vhostuser.GetQueueNum); err != nil {
			return err
		}
	}
	if have < uint64(want) {
		return fmt.Errorf("%w: %d queues, and the back end has %d", ErrFeatures, want, have)
	}
	return nil
}

// startRing tells the back end of a ring.
func (h *handshake) startRing(q *FrontendQueue, dir int) error {
	i := uint32(2*q.id + dir)
	size := h.f.cfg.Ring
	desc, avail, _ := vring.Layout(size, h.features&featurePacked != 0)
	at := ringsBase + uint64(int(i)*len(q.place[dir]))
	base := uint32(0)
	if h.features&featurePacked != 0 {
		base = 1<<15 | 1<<31 // both wrap counters
	}
	a := vhostuser.VringAddr{Index: i, Desc: at, Avail: at + uint64(desc), Used: at + uint64(desc+avail)}
	state := func(r vhostuser.Request, v uint32) *vhostuser.Message {
		return &vhostuser.Message{Request: r, Payload: vhostuser.VringState{Index: i, Num: v}.Append(nil)}
	}
	file := func(r vhostuser.Request, fd int) *vhostuser.Message {
		return &vhostuser.Message{Request: r, Payload: vhostuser.U64Payload(uint64(i)), FDs: []int{fd}}
	}
	list := []*vhostuser.Message{
		file(vhostuser.SetVringCall, q.call[dir]),
		state(vhostuser.SetVringNum, uint32(size)),
		state(vhostuser.SetVringBase, base),
		{Request: vhostuser.SetVringAddr, Payload: a.Append(nil)},
		file(vhostuser.SetVringKick, q.kick[dir]),
	}
	if h.features&featureProtocol != 0 {
		list = append(list, state(vhostuser.SetVringEnable, 1))
	}
	for _, m := range list {
		if err := h.acknowledged(m); err != nil {
			return err
		}
	}
	return nil
}

// stopLimit bounds how long a back end may take to stop its rings.
const stopLimit = time.Second

// stop has the back end stop all rings: after its answers it uses no frame any more.
func (h *handshake) stop() error {
	if err := h.conn.SetDeadline(time.Now().Add(stopLimit)); err != nil {
		return err
	}
	for i := range 2 * len(h.f.Queues) {
		m := &vhostuser.Message{Request: vhostuser.GetVringBase, Payload: vhostuser.VringState{Index: uint32(i)}.Append(nil)}
		if _, err := h.exchange(m); err != nil {
			return err
		}
	}
	return nil
}

func (h *handshake) send(m *vhostuser.Message) error { return h.conn.Send(m) }

// number sends a request with one number.
func (h *handshake) number(r vhostuser.Request, v uint64) error {
	return h.acknowledged(&vhostuser.Message{Request: r, Payload: vhostuser.U64Payload(v)})
}

// ask returns the number that the back end answers with.
func (h *handshake) ask(r vhostuser.Request) (uint64, error) {
	m, err := h.exchange(&vhostuser.Message{Request: r})
	if err != nil {
		return 0, err
	}
	return m.U64()
}

// acknowledged sends a request, and waits until it has been done where the back end says so (FeatureReplyAck).
func (h *handshake) acknowledged(m *vhostuser.Message) error {
	if h.protocol&vhostuser.FeatureReplyAck == 0 {
		return h.send(m)
	}
	m.NeedReply = true
	reply, err := h.exchange(m)
	if err != nil {
		return err
	}
	if v, err := reply.U64(); err != nil || v != 0 {
		return fmt.Errorf("%w: the back end refuses %v (%d, %w)", ErrFeatures, m.Request, v, errors.Join(err))
	}
	return nil
}

// exchange sends a request and waits for its reply.
func (h *handshake) exchange(m *vhostuser.Message) (*vhostuser.Message, error) {
	if err := h.send(m); err != nil {
		return nil, err
	}
	reply, err := h.conn.Recv()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", m.Request, err)
	}
	reply.CloseFDs()
	if !reply.Reply || reply.Request != m.Request {
		return nil, fmt.Errorf("%w: %v is answered by %v", vhostuser.ErrProtocol, m.Request, reply.Request)
	}
	return reply, nil
}

var _ pmd.Driver = (*FrontendQueue)(nil)
