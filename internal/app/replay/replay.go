// Package replay pushes captures through the packet path and counts what is in them.
//
//	capture -> pcap.Driver -> stack.Loop: engine -> filter -> count -> Out | dropped
//
// Run does that for a list of files, one after the other, and reports what it saw: protocols, flows,
// checksum errors, rule hits, drops and the time that it took. Verify compares, for every packet,
// the engine with its slow reference and with an independent decoder.
package replay

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// Config defines what is replayed, and how.
type Config struct {
	Files []string
	Laps  int          // how often each file is replayed; 0 is once
	Rate  pcap.Rate    // the zero value is as fast as possible
	Keep  KeepRecord   // which records are packets; nil takes all
	Limit uint64       // packets after which to stop, over all files; 0 is no limit
	Rules *filter.List // nil passes everything
	// Inspect are inspection rules, which see the packets that no access rule drops; nil is none. Their alerts are counted,
	// their actions are not taken. Not with Laps.
	Inspect *inspect.Rules

	Flows int // most flows that are counted; 0 is DefaultFlows

	Conversations int    // most flows to report with their packets, bytes and duration; 0 reports none
	Classify      bool   // recognise the application protocols of flows; with Conversations
	Save          string // a capture to write with the packets that pass; "" writes none. Not with Laps
	Capture       string // the same with the packets that rules capture

	Patterns *filter.Patterns   // literals to find in the payloads of flows, in the order of packets; nil is none
	Routes   *filter.Routes     // nil finds no next hop
	OnMatch  func(PatternMatch) // called for every match, by the goroutine of Run; nil is not
	Engine   OpenEngine         // nil is the CPU's

	// Expressions opens the search for the expressions of Patterns; nil is the calling core's.
	Expressions OpenExpressions

	// Out is the device that packets are sent to, opened with Pool, which may not be used otherwise
	// meanwhile. Without it packets go nowhere.
	Out  pmd.Driver
	Pool *ring.Pool

	// OnProgress, if it is set, is called from another goroutine while a file is replayed.
	OnProgress func(Progress)
}

// KeepRecord reports whether a record of a capture is to be replayed.
type KeepRecord func(*capture.Record) bool

// Progress is the position of a run.
type Progress struct {
	File           int     // index in Config.Files
	Packets, Bytes uint64  // of that file, of all laps
	Lap            int     // of that file, from 1
	Done           float64 // part of the file's laps, 0 to 1; negative where it is not known, as in a file that is streamed
}

// OpenEngine opens an engine for packets in an arena, which is closed after it.
type OpenEngine func(cfg gpukern.Config, arena *ring.Arena) (gpukern.Engine, error)

func openCPU(cfg gpukern.Config, _ *ring.Arena) (gpukern.Engine, error) {
	return gpukern.NewCPU(cfg), nil
}

// engineConfig says what an engine does with lists, of which any may be nil.
func engineConfig(rules *filter.List, patterns *filter.Patterns, routes *filter.Routes) gpukern.Config {
	c := gpukern.Config{Ops: gpukern.OpsHeader | gpukern.OpL2Encap}
	if rules != nil {
		c.Tables.ACL = rules.ACL()
	}
	if routes != nil {
		c.Tables.Routes = routes.LPM()
	}
	if patterns.Set() != nil {
		c.Ops |= gpukern.OpLiterals
		c.Tables.Literals = patterns.Set()
	}
	return c
}

// loopFrames are more than a loop that sends nothing ever has in flight: a burst for each batch of the
// engine and two more.
const loopFrames = 1024

// Run replays the files and reports. A file that cannot be read, or not to its end, is reported in its
// part of the report and the others go on; an error is about what all need. When ctx ends the report
// has what was done until then.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Rules == nil {
		cfg.Rules = &filter.List{}
	}
	if cfg.Engine == nil {
		cfg.Engine = openCPU
	}
	r := &runner{cfg: cfg, rep: newReport(), flows: newFlows(cfg.Flows), filter: newFilter(cfg.Rules), found: newMatches(&cfg)}
	r.flows.converse, r.flows.classify = cfg.Conversations > 0, cfg.Classify
	r.inspect = newInspector(cfg.Inspect, r.flows)
	if cfg.Inspect != nil && cfg.Laps > 1 {
		return nil, errors.New("replay: packets are inspected once, not in each of several laps")
	}
	var err error
	if r.search, err = newExpressions(&cfg, r.found.expression); err != nil {
		return nil, err
	}
	if err := r.openSavers(); err != nil {
		return nil, errors.Join(err, r.search.close())
	}
	r.openOut()
	for i := range cfg.Files {
		if ctx.Err() != nil || r.full() || r.bad != nil || r.save.failed() || r.record.failed() {
			break
		}
		r.file(ctx, i)
	}
	r.rep.Stopped = ctx.Err() != nil
	err = errors.Join(r.closeOut(), r.closeEngine(), r.closeMemory(), r.closeSavers())
	r.rep.Expressions = r.search.finish()
	err = errors.Join(err, r.search.close())
	if r.bad != nil {
		return nil, errors.Join(r.bad, err)
	}
	r.rep.finish(r.flows, cfg.Rules, r.filter)
	r.rep.Inspected = r.inspect.finish()
	if r.flows.converse {
		r.rep.Conversations = r.flows.largest(cfg.Conversations, r.rep.Total.Packets)
	}
	r.found.finish(r.rep)
	return r.rep, err
}

// runner is a run on its way.
type runner struct {
	cfg     Config
	rep     *Report
	flows   *flows
	filter  *filter.Filter
	found   *matches
	search  *expressions // nil without expressions
	inspect *inspector
	engine  *timed       // nil until there is an arena
	streams *streamState // of that engine; nil without patterns
	memory  *ring.Arena  // that engine was opened for
	stream  *ring.Pool   // of the files that are streamed, one after the other; nil until there is one
	out     *sink        // nil where packets go nowhere
	save    *saver       // nil where no capture is written
	record  *saver       // the same
	bad     error        // no engine could be opened
}

// newFilter returns a filter that sends what rules redirect to the one output.
func newFilter(rules *filter.List) *filter.Filter {
	f := filter.NewFilter(checks, rules)
	f.Seed = rand.Uint64()
	for range rules.Devices() {
		f.Ports = append(f.Ports, outPort)
	}
	return f
}

// openSavers creates the captures to write.
func (r *runner) openSavers() (err error) {
	if r.save, err = newSaver(&r.cfg, r.cfg.Save); err != nil {
		return err
	}
	if r.record, err = newSaver(&r.cfg, r.cfg.Capture); err != nil {
		return errors.Join(err, r.closeSavers())
	}
	return nil
}

// closeSavers ends the captures.
func (r *runner) closeSavers() error {
	var err1, err2 error
	r.rep.Saved, err1 = r.save.close()
	r.rep.Captured, err2 = r.record.close()
	return errors.Join(err1, err2)
}

// openEngine opens the engine for packets in arena, unless it is open for it already.
func (r *runner) openEngine(arena *ring.Arena) error {
	if r.memory == arena {
		return nil
	}
	if err := r.closeEngine(); err != nil {
		return err
	}
	e, err := r.startEngine(arena)
	if err != nil {
		r.bad = err
		return err
	}
	r.engine, r.memory = &timed{Engine: e}, arena
	return nil
}

// startEngine opens the engine, with flows of its own where literals are looked for.
func (r *runner) startEngine(arena *ring.Arena) (gpukern.Engine, error) {
	cfg := engineConfig(r.cfg.Rules, r.cfg.Patterns, r.cfg.Routes)
	if r.cfg.Patterns.Set() == nil {
		return r.cfg.Engine(cfg, arena)
	}
	a, err := newStreamState(&cfg)
	if err != nil {
		return nil, err
	}
	e, err := r.cfg.Engine(cfg, arena)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	r.streams = a
	return e, nil
}

// closeEngine closes the engine, before its arena.
func (r *runner) closeEngine() error {
	if r.engine == nil {
		return nil
	}
	e, a := r.engine, r.streams
	r.engine, r.memory, r.streams = nil, nil, nil
	err := e.Close() // it has done all that is inside then
	r.rep.Engine.Add(e.Info())
	if a != nil {
		err = errors.Join(err, a.close())
	}
	return err
}

// closeMemory gives the arena of streamed files back.
func (r *runner) closeMemory() error {
	if r.stream == nil {
		return nil
	}
	return r.stream.Arena().Close()
}

func (r *runner) openOut() {
	if r.cfg.Out == nil {
		return
	}
	r.out = &sink{Driver: r.cfg.Out}
	info := r.out.Info()
	r.rep.Output = &Output{Device: info.Device, Driver: info.Driver, Negotiated: info.Negotiated, MTU: info.MTU}
}

// closeOut waits for the output device and reads its counters. The device stays open.
func (r *runner) closeOut() error {
	if r.out == nil {
		return nil
	}
	err := r.out.flush(stack.Now(), packet.NewBatch(r.cfg.Pool.Arena().View(), 0))
	s := r.out.Info().Stats
	o := r.rep.Output
	o.Packets, o.Bytes, o.TxInvalid = s.TxPackets-s.TxInvalid, s.TxBytes-s.TxInvalidBytes, s.TxInvalid
	return err
}

// full reports whether Limit is reached.
func (r *runner) full() bool { return r.cfg.Limit != 0 && r.rep.Total.Packets >= r.cfg.Limit }

func newPool(frames int) (*ring.Arena, *ring.Pool, error) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: frames})
	if err != nil {
		return nil, nil, err
	}
	pool, err := arena.Cut(0)
	return arena, pool, err
}

// file replays one file and adds its part to the report.
func (r *runner) file(ctx context.Context, i int) {
	f := File{Path: r.cfg.Files[i]}
	if err := r.replay(ctx, i, &f); err != nil {
		f.Err = err
		f.Error = err.Error()
	}
	r.rep.add(f)
}

// replay replays one file: it makes the loop, runs it, and reads the counters.
func (r *runner) replay(ctx context.Context, i int, f *File) (err error) {
	src, pool, closeAll, err := r.open(f.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	if r.cfg.Limit != 0 {
		src.left = r.cfg.Limit - r.rep.Total.Packets
	}
	f.Mode = src.mode.String()
	if err := r.openEngine(pool.Arena()); err != nil {
		return err
	}
	r.search.flush()
	r.found.begin(f.Path)
	h := &handler{src: src, filter: r.filter, flows: r.flows, found: r.found, search: r.search, inspect: r.inspect, save: r.save, record: r.record, sum: newSum()}
	ports := []pmd.Driver{src}
	if r.out != nil {
		r.out.src, src.window = src, true
		ports = append(ports, r.out)
		h.forward = true
	}
	loop, err := stack.NewLoop(stack.Config{Devices: ports, Pool: pool, Engine: r.engine, Handler: h})
	if err != nil {
		return err
	}
	r.flows.begin()
	r.save.begin()
	r.record.begin()
	stop := r.progress(i, loop, src)
	spent, start := r.engine.spent, time.Now()
	err = loop.Run(ctx)
	f.seconds, f.engine = time.Since(start), r.engine.spent-spent
	stop()
	f.take(h, loop.Stats(), src.Records())
	if r.out != nil {
		r.rep.Output.Longest = max(r.rep.Output.Longest, h.longest)
	}
	f.Flows = r.flows.inFile
	return errors.Join(err, src.damage, loop.Close())
}

// open opens a file. What is replayed once is streamed; what is replayed again is read into memory
// first: into frames that are lent again and again where nothing is sent. A file whose packets take
// more frames than it seemed, because they are tiny or were compressed, is kept outside of frames.
func (r *runner) open(path string) (*source, *ring.Pool, func() error, error) {
	mode := r.mode(path)
	src, pool, closeAll, err := r.openAs(path, mode)
	if err != nil && mode == pcap.Resident {
		return r.openAs(path, pcap.Preload)
	}
	return src, pool, closeAll, err
}

// mode returns where the packets of a file wait.
func (r *runner) mode(path string) pcap.Mode {
	switch {
	case r.cfg.Laps <= 1:
		return pcap.Stream
	case r.out == nil && fits(path):
		return pcap.Resident
	}
	return pcap.Preload
}

// openAs opens a file in a mode, with an arena of its own where nothing is sent.
func (r *runner) openAs(path string, mode pcap.Mode) (*source, *ring.Pool, func() error, error) {
	pc := pcap.Config{
		Files: []string{path}, Mode: mode, Laps: max(r.cfg.Laps, 1), Rate: r.cfg.Rate, Keep: r.cfg.Keep, FillLengths: true,
		// Where capture times are not used, gaps of seconds between them need not end batches early.
		StampNow: r.cfg.Conversations == 0 && r.save == nil && r.record == nil && r.inspect == nil && !r.cfg.Rules.Limited(),
	}
	if r.save != nil || r.record != nil {
		pc.OnPacket = func(size int) {
			r.save.note(size)
			r.record.note(size)
		}
	}
	if r.out != nil {
		p, err := pcap.Open(r.cfg.Pool, pc)
		if err != nil {
			return nil, nil, nil, err
		}
		return &source{Driver: p, mode: mode}, r.cfg.Pool, p.Close, nil
	}
	if mode != pcap.Resident {
		return r.openStream(pc)
	}
	arena, pool, err := newPool(loopFrames + residentFrames(path))
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := pcap.Open(pool, pc)
	if err != nil {
		return nil, nil, nil, errors.Join(err, arena.Close())
	}
	return &source{Driver: p, mode: mode}, pool, func() error {
		var err error
		if r.memory == arena {
			err = r.closeEngine()
		}
		return errors.Join(err, ring.Audit(arena, pool, p), p.Close(), arena.Close())
	}, nil
}

// openStream opens a file whose packets wait outside of frames. All such files have one arena, so that
// one engine does them all.
func (r *runner) openStream(pc pcap.Config) (*source, *ring.Pool, func() error, error) {
	if r.stream == nil {
		_, pool, err := newPool(loopFrames)
		if err != nil {
			return nil, nil, nil, err
		}
		r.stream = pool
	}
	pool := r.stream
	p, err := pcap.Open(pool, pc)
	if err != nil {
		return nil, nil, nil, err
	}
	return &source{Driver: p, mode: pc.Mode}, pool, func() error {
		return errors.Join(ring.Audit(pool.Arena(), pool, p), p.Close())
	}, nil
}

// fits reports whether a file is worth a try to be resident: one of at most a quarter of what an arena
// can hold. A pipe is not, as it cannot be read a second time.
func fits(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() <= 512<<20
}

// residentFrames returns how many frames of 2 KiB hold the packets of a file: packets of just over
// half a frame, and those of some 40 bytes, which begin at a cache line each, take twice their bytes.
func residentFrames(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // opening it reports what is wrong
	}
	return int(info.Size() / 1024)
}

// progress starts reporting the position of the loop; the function that it returns stops it.
func (r *runner) progress(file int, loop *stack.Loop, src *source) (stop func()) {
	if r.cfg.OnProgress == nil {
		return func() {}
	}
	laps := max(r.cfg.Laps, 1)
	lap := uint64(src.Packets()) // 0 where the file is streamed
	show := func() {
		s := loop.Stats()
		p := Progress{File: file, Packets: s.Received, Bytes: s.ReceivedBytes, Lap: 1, Done: -1}
		if lap > 0 {
			p.Lap = min(int(s.Received/lap)+1, laps)
			p.Done = float64(s.Received) / (float64(lap) * float64(laps))
		}
		r.cfg.OnProgress(p)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(100 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				show()
			}
		}
	}()
	return func() {
		close(quit)
		<-done
		show()
	}
}

// timed is an engine that counts the time spent in it.
type timed struct {
	gpukern.Engine
	spent time.Duration
}
