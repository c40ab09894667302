package dpdk

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// Config describes a device to open. Name and Pools are required.
type Config struct {
	Name        string       // as DPDK names it, with arguments: "net_af_xdp0,iface=eth1", "0000:3b:00.0"; a leading "dpdk:" is allowed
	Pools       []*ring.Pool // one for each queue, cut from one arena
	Ring        int          // packets that may wait for Rx, where the device has a ring; 0 is DefaultRing
	MTU         int          // largest network-layer packet, bytes; 0 is what the device has
	Promiscuous bool         // receive frames for other link addresses too
	Multicast   bool         // receive all multicast frames

	// OnLoop runs f in the loop of queue i, which alone may use its pool, and waits for it; false: the loops have ended. nil: no
	// loop runs yet.
	OnLoop func(i int, f func()) bool

	port *uint32 // of a device that exists already, in tests

	rxOffloads, txOffloads uint64 // that a test adds
	noRSS                  bool   // of rules, in tests
}

// DefaultRing is the number of packets that may wait for Rx.
const DefaultRing = 1024

// txRing is the number of packets that may wait for the device.
const txRing = 1024

// Device is an open device. Its queues belong to one loop each.
type Device struct {
	Queues []*Queue
	Name   string // with its arguments

	shim    *shim
	port    uint32
	info    portInfo
	where   devargs.Args
	driver  string // "net_af_xdp"
	mtu     int
	modes   string
	started bool
	onLoop  func(i int, f func()) bool
	restore func() error // returns the device to the kernel's driver; nil: it was not taken
	closing atomic.Bool  // no queue may call the shim any more
	flows   *flowTable   // nil until it has started
	large   atomic.Bool  // packets that the device has joined pass whole (SetOffload)

	link      kernelLink
	namespace *os.File // of the thread that opened it; nil where there is no /proc

	mu    sync.Mutex // guards closed and final
	done  bool
	final pmd.Stats // losses at the end
}

// Open opens a device and starts its queues. It borrows the pools until Close.
func Open(cfg Config) (*Device, error) {
	where, err := devargs.Parse(cfg.Name)
	if err != nil {
		return nil, &pmd.OpError{Op: "open", Device: cfg.Name, Err: fmt.Errorf("%w: %w", ErrArguments, err)}
	}
	if where.Kind == "net_virtio_user" {
		return nil, &pmd.OpError{
			Op: "open", Device: cfg.Name, Err: fmt.Errorf("%w: the driver shares DPDK's own memory with its device, and no arena", ErrArguments),
			Remedy: "take virtio:PATH",
		}
	}
	d := &Device{Name: where.Text, where: where, link: kernelLink{fd: -1, members: -1}, onLoop: cfg.OnLoop}
	if err := checkPools(cfg.Pools); err != nil {
		return nil, &pmd.OpError{Op: "open", Device: d.Name, Err: err}
	}
	if d.shim, err = load(); err != nil {
		return nil, unavailable(d.Name, err)
	}
	if err := d.shim.startEAL(!where.Virtual); err != nil {
		return nil, d.environmentError(err)
	}
	if err := d.take(kernelSysfs{}); err != nil {
		return nil, err
	}
	d.namespace, _ = os.Open("/proc/thread-self/ns/net") // nil: devices are closed in the namespace of the process
	if err := d.probe(cfg.port); err != nil {
		return nil, errors.Join(err, d.closeFiles(), d.handBack())
	}
	d.info.txOffloads |= cfg.txOffloads
	if err := d.open(&cfg); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func checkPools(pools []*ring.Pool) error {
	if len(pools) == 0 {
		return errors.New("no pool: a device has at least one queue")
	}
	for _, p := range pools {
		if p == nil || p.Arena() != pools[0].Arena() {
			return errors.New("the pools are not of one arena")
		}
	}
	return nil
}

func (d *Device) environmentError(err error) error {
	e := &pmd.OpError{Op: "open", Device: d.Name, Err: err}
	switch {
	case errors.Is(err, ErrNoHugePages):
		e.Remedy = "sysctl -w vm.nr_hugepages=512, and start again; or without, slower: " + EALVariable + "=\"--no-huge -m 256\""
	case errors.Is(err, ErrEnvironment):
		e.Remedy = "see " + EALVariable + " in docs/dpdk.md; EAL starts once in a process"
	}
	return e
}

// probe finds the device, or makes it, and reads what it can do.
func (d *Device) probe(port *uint32) error {
	d.shim.log()
	if port != nil {
		d.port = *port
	} else {
		args, name := cString(d.where.Text), cString(d.where.Name)
		n := d.shim.call("mrd_probe", uintptr(unsafe.Pointer(args)), uintptr(unsafe.Pointer(name)))
		if err := errno(n); err != nil {
			return explain("probe", d.Name, 0, err, d.shim.log())
		}
		d.port = uint32(n)
	}
	if err := errno(d.shim.call("mrd_describe", uintptr(d.port), uintptr(unsafe.Pointer(&d.info)))); err != nil {
		return errors.Join(explain("describe", d.Name, 0, err, d.shim.log()), d.Close())
	}
	d.driver = text(d.info.driver[:])
	d.mtu = int(d.info.mtu)
	d.link.open(int(d.info.interfaceIndex))
	if d.driver == "net_tap" {
		d.link.countDrops()
	}
	return nil
}

// open configures the device and starts it.
func (d *Device) open(cfg *Config) error {
	s, err := d.plan(cfg)
	if err != nil {
		return &pmd.OpError{Op: "open", Device: d.Name, Err: err, Remedy: remedyOf(err)}
	}
	if err := errno(d.shim.call("mrd_configure", uintptr(unsafe.Pointer(s)))); err != nil {
		return explain("configure", d.Name, 0, err, d.shim.log())
	}
	for i, p := range cfg.Pools {
		if err := d.addQueue(i, p, s); err != nil {
			return err
		}
	}
	if err := errno(d.shim.call("mrd_start", uintptr(unsafe.Pointer(s)))); err != nil {
		return explain("start", d.Name, 0, err, d.shim.log())
	}
	d.started = true
	if d.onInterface() {
		if err := d.link.receiveAlso(cfg.Promiscuous, cfg.Multicast); err != nil {
			return &pmd.OpError{Op: "open", Device: d.Name, Err: fmt.Errorf("its filters: %w", err), Remedy: "the process needs CAP_NET_RAW"}
		}
	}
	d.flows = newFlowTable(&shimFlows{d.shim, flowSpec{
		rssTypes: s.rssTypes, port: s.port, queues: s.queues, keySize: s.keySize, key: s.key,
	}}, flowActions(len(cfg.Pools), s.rssTypes != 0 && !cfg.noRSS))
	d.shim.log()
	for _, q := range d.Queues {
		d.shim.call("mrd_rest", q.c)
		if err := d.withPool(q.id, func() {
			q.putBack(int(d.shim.call("mrd_return", q.c, uintptr(unsafe.Pointer(&q.back)), uintptr(len(q.back)), 0)))
		}); err != nil {
			return err
		}
	}
	d.modes = d.describe(cfg, s)
	return nil
}

// addQueue makes a queue and lends it the frames that the device wants at once.
func (d *Device) addQueue(id int, pool *ring.Pool, s *setup) error {
	ringFrames := d.ringFrames(s)
	depth := min(mostDepth, max(1, (pool.Size()-ringFrames)/8))
	frames, err := d.takeFrames(id, pool, ringFrames+depth)
	if err != nil {
		return err
	}
	memory, err := d.shim.memory(pool.Arena(), d.inside())
	if err != nil {
		return errors.Join(&pmd.OpError{Op: "open", Device: d.Name, Queue: id, Err: err}, d.returnFrames(id, pool, frames))
	}
	q := &Queue{dev: d, id: id, pool: pool, depth: depth, memory: memory}
	d.Queues = append(d.Queues, q)
	if id == 0 {
		if err := d.mapDMA(memory); err != nil {
			return errors.Join(err, d.returnFrames(id, pool, frames))
		}
	}
	if q.c = uintptr(d.shim.call("mrd_queue_new", memory.c, uintptr(d.port), uintptr(id), uintptr(depth))); q.c == 0 {
		return errors.Join(explain("queue", d.Name, id, fmt.Errorf("its mempool: %w", unix.ENOMEM), d.shim.log()), d.returnFrames(id, pool, frames))
	}
	q.counts = (*counts)(pointer(q.c))
	d.shim.call("mrd_lend", q.c, uintptr(unsafe.Pointer(unsafe.SliceData(frames))), uintptr(len(frames)))
	if err := errno(d.shim.call("mrd_queue_setup", q.c, uintptr(unsafe.Pointer(s)), uintptr(d.mtu+etherHeader), flag(d.chains()))); err != nil {
		return explain("queue", d.Name, id, err, d.shim.log())
	}
	return nil
}

// withPool runs f in the loop that owns the pool of a queue, where loops run.
func (d *Device) withPool(queue int, f func()) error {
	if d.onLoop == nil {
		f()
	} else if !d.onLoop(queue, f) {
		return &pmd.OpError{Op: "open", Device: d.Name, Queue: queue, Err: pmd.ErrClosed}
	}
	return nil
}

// takeFrames takes n frames out of the pool of a queue, or none.
func (d *Device) takeFrames(queue int, pool *ring.Pool, n int) (frames []uint32, err error) {
	free := 0
	err = d.withPool(queue, func() {
		for free = pool.Free(); free >= n && len(frames) < n; {
			frames = append(frames, pool.GetBatch(min(mostDepth, n-len(frames)))...)
		}
	})
	if err == nil && free < n {
		err = &pmd.OpError{
			Op: "open", Device: d.Name, Queue: queue,
			Err:    fmt.Errorf("%w: %s takes %d, and the pool has %d free of %d", ErrFrames, d.driver, n, free, pool.Size()),
			Remedy: "more frames for each queue, or a shorter ring",
		}
	}
	return frames, err
}

func (d *Device) returnFrames(queue int, pool *ring.Pool, frames []uint32) error {
	return d.withPool(queue, func() {
		for _, off := range frames {
			pool.Put(off)
		}
	})
}

// Steer makes the device mark and distribute what the rules claim (rte_flow), as far as it can: the rest is the software's, as
// without rules (InSoftware). They replace those of the call before. Any goroutine may call it.
func (d *Device) Steer(rules ...pmd.Rule) error {
	if err := d.flows.replace(rules); err != nil {
		return &pmd.OpError{Op: "steer", Device: d.Name, Err: err}
	}
	return nil
}

// InSoftware returns why some claims of Steer are steered in software; nil where none is.
func (d *Device) InSoftware() error { return d.flows.status.Load().refusal() }

// Close stops the device and removes it from DPDK. It returns the frames of all queues that their loops have not closed to
// their pools: in those loops (Config.OnLoop), or at once where none runs.
func (d *Device) Close() error {
	err := d.stop()
	for _, q := range d.Queues {
		if q.closed {
			continue
		}
		var closing error
		if d.withPool(q.id, func() { closing = q.Close() }) != nil && !q.closed {
			closing = q.Close() // the loops have ended
		}
		err = errors.Join(err, closing)
	}
	return err
}

// stop stops the device, once. Queues of other loops find out by closing, and the frames stay theirs until each is closed.
func (d *Device) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return nil
	}
	d.done = true
	d.closing.Store(true)
	for _, q := range d.Queues {
		for q.busy.Load() { // a call lasts microseconds
			runtime.Gosched()
		}
	}
	d.final = d.losses()
	var err, flowErr error
	d.inNamespace(func() {
		if d.flows != nil {
			flowErr = d.flows.close()
		}
		err = errno(d.shim.call("mrd_stop", uintptr(d.port), flag(d.started), flag(d.driver == "net_memif")))
	})
	if err = errors.Join(err, flowErr); err != nil && !d.link.gone() { // a device that is gone cannot be stopped
		err = explain("close", d.Name, 0, err, d.shim.log())
	} else {
		err = nil
	}
	return errors.Join(err, d.closeFiles(), d.handBack())
}

// handBack returns the device to the kernel's driver that it was taken from, once.
func (d *Device) handBack() error {
	if d.restore == nil {
		return nil
	}
	restore := d.restore
	d.restore = nil
	return restore()
}

func (d *Device) closeFiles() error {
	d.link.close()
	if d.namespace == nil {
		return nil
	}
	f := d.namespace
	d.namespace = nil
	return f.Close()
}

// inNamespace runs f in the network namespace in which the device was opened: drivers look for their interface by its
// index when they remove what they have attached to it.
func (d *Device) inNamespace(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if d.namespace == nil {
			f()
			return
		}
		runtime.LockOSThread()
		var want, is unix.Stat_t
		err := errors.Join(unix.Fstat(int(d.namespace.Fd()), &want), unix.Stat("/proc/thread-self/ns/net", &is))
		if err != nil || want.Dev == is.Dev && want.Ino == is.Ino || unix.Setns(int(d.namespace.Fd()), unix.CLONE_NEWNET) != nil {
			defer runtime.UnlockOSThread() // a thread that has moved ends with its goroutine
		}
		f()
	}()
	<-done
}

// losses returns what the device counts as lost. The caller holds d.mu.
func (d *Device) losses() (s pmd.Stats) {
	if !d.started {
		return s
	}
	var l losses
	if errno(d.shim.call("mrd_losses", uintptr(d.port), uintptr(unsafe.Pointer(&l)))) == nil {
		s.RxMissed = l.missed + d.link.drops()
		s.RxInvalid = l.rxErrors
	}
	return s
}

// flag returns b as C has it.
func flag(b bool) uintptr {
	if b {
		return 1
	}
	return 0
}
