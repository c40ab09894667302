// Package role has the parts that the benchmark program plays in processes of their own: senders,
// sinks, forwarders, peers that are libraries, and the packets, tables and streams that they share
// with the suites. A part writes a harness.Mark as a line of JSON whenever it reads a line.
package role

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/gpukern"
)

// A role is a part of a contestant that this program plays itself, in a process of its own.
type role struct {
	name string
	// open sets the part up from its flags and returns the work.
	open func(o roleOptions) (roleWork, error)
}

// roles are all there are.
var roles = []role{
	{"source", openSource},
	{"sink", openSink},
	{"xdpdrop", openXDPDrop},
	{"verdicts", openVerdicts},
	{"rx", openReceiver},
	{"tx", openSender},
	{"forward", openForwarder},
	{"headers", openHeaders},
	{"run", openRun},
	{"napi", openNAPI},
	{"dpdk", openDPDK},
	{"testpmd", openTestpmd},
	{"vhost", openVhost},
	{"handler", openHandler},
	{"loops", openLoops},
	{"serve", openServe},
	{"connect", openConnect},
	{"bulk", openBulk},
	{"guard", openGuard},
	{"datagrams", openDatagrams},
	{"tables", openTables},
	{"literals", openLiterals},
	{"crypto", openCrypto},
	{"expression", openExpression},
	{"inspection", openInspection},
	{"rule-load", openRuleLoad},
	{"tcp-serve", openTCPServe},
	{"tcp-load", openTCPLoad},
	{"tcp-memory", openTCPMemory},
	{"rdma-serve", openRDMAServe},
	{"rdma-load", openRDMALoad},
	{"rdma-memory", openRDMAMemory},
	{"udp-serve", openDatagramServe},
	{"udp-load", openDatagramLoad},
	{"icrc", openICRC},
	{"perftest", openPerftest},
	{"quic", openQUIC},
	{"quic-bulk", openQUICBulk},
	{"tls-peek", openTLSPeek},
	{"qpack", openQPACK},
	{"http3", openHTTP3},
	{"http3-serve", openHTTP3Serve},
	{"http3-load", openHTTP3Load},
	{"websocket", openWebSocket},
	{"tls-memory", openTLSMemory},
	{"web-serve", openWebServe},
	{"web-load", openWebLoad},
	{"web-load3", openWebLoad3},
	{"web-proxy", openWebProxy},
	{"redis-count", openRedisCount},
	{"nginx-count", openNginxCount},
	{"lines", openLines},
}

// roleOptions are the flags of all roles; each uses what it needs.
type roleOptions struct {
	dev, driver string
	as          string // which contestant of the header measures
	ops         uint   // gpukern.Ops
	size        int    // bytes of a packet
	stream      Stream // of the source
	ring, batch int
	rate        int    // connections per second
	anyEnd      bool   // a foreign program may end as it likes
	cpu         int    // first of those that loops run on
	ready       string // what a foreign program says when it is ready
	version     string // of it
	op, cc      string // of the tcp roles: what the client does, and congestion control
	serverFirst bool   // the server closes connections first
	conns       int    // connections at once
	idle        int    // connections beside them that do nothing
	loops, mtu  int
	answer      uint   // of the sink: one of so many probes is answered
	loopback    bool   // one stack is both ends
	way         string // netpeer.Callbacks or Polled, in place of goroutines
	tls         string // "crypto/tls" or "engine": connections of a tcp role speak TLS
	compute     int    // goroutines that compute beside a tcp role, without a pause
	profile     string // file for a CPU profile of a tcp or web role
	web         WebOptions
	at          string // address at which a foreign program accepts connections when it is ready
	args        []string
}

// roleWork is an opened role.
type roleWork struct {
	version string
	step    func() error                      // a short piece of work, called again until the end; nil waits for the end
	counts  func() (map[string]uint64, error) // called beside step, from another thread
	cpu     func() (int64, error)             // CPU nanoseconds of whom the part stands for; nil is this process
	stop    func() error                      // called beside step when the end has come; may be nil
	close   func() error                      // after the last step and before the last counts
}

// Run plays the role that args name, with its flags, and returns the exit code.
func Run(args []string) int {
	if err := playRole(args, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func playRole(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("which role?")
	}
	var o roleOptions
	fs := flag.NewFlagSet("role", flag.ContinueOnError)
	fs.StringVar(&o.dev, "dev", "", "interface")
	fs.StringVar(&o.driver, "driver", "afxdp", "driver")
	fs.StringVar(&o.as, "as", "engine", "contestant of the header measures")
	fs.UintVar(&o.ops, "ops", uint(gpukern.OpsHeader), "operations of the header pass, as bits")
	fs.IntVar(&o.rate, "rate", 0, "connections per second")
	fs.BoolVar(&o.serverFirst, "server-first", false, "a client closes its connection after the server has")
	fs.BoolVar(&o.anyEnd, "any-end", false, "a program may end as it likes once it is asked to")
	fs.IntVar(&o.cpu, "cpu", 1, "first CPU of loops")
	fs.StringVar(&o.ready, "ready", "", "words of a program that is ready")
	fs.StringVar(&o.version, "version", "", "version of the program")
	fs.StringVar(&o.op, "op", "echo", "what a client does")
	fs.StringVar(&o.cc, "cc", "", "congestion control")
	fs.IntVar(&o.conns, "conns", 1, "connections at once")
	fs.IntVar(&o.idle, "idle", 0, "idle connections beside them")
	fs.BoolVar(&o.loopback, "loopback", false, "one stack, Millrace's, is both ends of connections in memory")
	fs.StringVar(&o.way, "way", "", "how connections in memory are used: callbacks or poller; empty is a goroutine for each")
	fs.StringVar(&o.tls, "tls", "", "connections speak TLS: by crypto/tls, or by engine (a server over millrace)")
	fs.IntVar(&o.compute, "compute", 0, "goroutines that compute beside a tcp role; the process then runs on all CPUs")
	fs.StringVar(&o.profile, "profile", "", "file for a CPU profile of a tcp or web role")
	fs.StringVar(&o.at, "at", "", "a foreign program is ready when it accepts a connection at this address")
	o.web.flags(fs)
	fs.UintVar(&o.answer, "answer", 0, "a sink with -as tc sends one of so many probes back, a power of two, and counts the others")
	fs.IntVar(&o.loops, "loops", 1, "loops of the stack")
	fs.IntVar(&o.mtu, "mtu", 1500, "largest IP packet, bytes")
	o.stream.flags(fs)
	fs.IntVar(&o.size, "size", 64, "bytes of a packet")
	fs.IntVar(&o.ring, "ring", 4096, "entries of each ring")
	fs.IntVar(&o.batch, "batch", 64, "packets of a batch")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	o.args = fs.Args()
	for _, r := range roles {
		if r.name != args[0] {
			continue
		}
		runtime.LockOSThread() // the work stays on one thread; timer slack is the thread's
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		w, err := r.open(o)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		return w.play(in, out)
	}
	return fmt.Errorf("no role %q", args[0])
}

// play is the part's side of the protocol of Mark.
func (w roleWork) play(in io.Reader, out io.Writer) error {
	enc := json.NewEncoder(out)
	if err := enc.Encode(harness.Mark{Ready: true, Version: w.version}); err != nil {
		return err
	}
	var stopped atomic.Bool
	ended := make(chan error, 1)
	go func() {
		err := w.answerLoop(in, enc)
		if w.stop != nil {
			err = errors.Join(err, w.stop())
		}
		ended <- err
		stopped.Store(true)
	}()
	var err error
	for w.step != nil && !stopped.Load() && err == nil {
		err = w.step()
	}
	if err == nil {
		err = <-ended
	}
	if w.close != nil {
		err = errors.Join(err, w.close())
	}
	if err != nil {
		return err
	}
	return w.tell(enc, true)
}

// answerLoop tells the counters for every line, until the input ends.
func (w roleWork) answerLoop(in io.Reader, enc *json.Encoder) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := w.tell(enc, false); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (w roleWork) tell(enc *json.Encoder, final bool) error {
	c, err := w.counts()
	if err != nil {
		return err
	}
	m := harness.Mark{NS: clockNanos(unix.CLOCK_MONOTONIC), CPU: clockNanos(unix.CLOCK_PROCESS_CPUTIME_ID), Final: final, Counts: c}
	if w.cpu != nil {
		if m.CPU, err = w.cpu(); err != nil {
			return err
		}
	}
	return enc.Encode(m)
}

// clockNanos reads one of the clocks that every process has.
func clockNanos(clock int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(clock, &ts) // cannot fail for these
	return ts.Nano()
}

// nap is the time that every receiver sleeps that finds nothing, in C too (peers/peer.h): spinning would
// measure how slowly a contestant polls, and poll(2) at every wake-up would cost more than a packet.
const nap = 20 * time.Microsecond

// rest publishes what t has counted and sleeps.
func rest(t *tally) {
	t.publish()
	ts := unix.NsecToTimespec(int64(nap))
	// Raw: the sleep is too short for the scheduler to be told, which costs more than a packet. An
	// early wake-up is only another poll.
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
