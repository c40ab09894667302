// Command asavie is a peer of the packet-io suite: the rings of github.com/asavie/xdp in loops as
// lean as its interface allows. It speaks the line protocol of bench/process.go. It is a module of
// its own so that its dependencies stay out of Millrace's.
//
//	asavie [-s bytes] [-r ring] [-b batch] rx|tx|forward DEVICE
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/asavie/xdp"
	"golang.org/x/sys/unix"
)

const (
	seqAt    = 42 // of the sequence number, behind Ethernet, IPv4 and UDP
	probeMin = seqAt + 8
	napNanos = 20000 // how long a receiver sleeps that finds nothing
)

// count is what the control goroutine reads; the work publishes its own counts when there is time, or
// after some batches, because an atomic store costs as much as a packet.
var count struct {
	packets, bytes, gaps, reordered, dropped atomic.Uint64
}

var own struct{ packets, bytes, gaps, reordered, batches uint64 }

// publishEvery is the number of batches that the work counts for itself.
const publishEvery = 32

func publish() {
	count.packets.Store(own.packets)
	count.bytes.Store(own.bytes)
	count.gaps.Store(own.gaps)
	count.reordered.Store(own.reordered)
}

func endBatch() {
	if own.batches++; own.batches%publishEvery == 0 {
		publish()
	}
}

var (
	next    uint64 // sequence number that is expected
	stopped atomic.Bool
	size    = flag.Int("s", 64, "bytes of a packet")
	entries = flag.Int("r", 4096, "entries of each ring")
	batch   = flag.Int("b", 64, "packets of a batch")
)

func main() {
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if err := play(flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(role, dev string) error {
	nic, err := net.InterfaceByName(dev)
	if err != nil {
		return err
	}
	sock, err := xdp.NewSocket(nic.Index, 0, &xdp.SocketOptions{
		NumFrames: 2 * *entries, FrameSize: 2048, FillRingNumDescs: *entries,
		CompletionRingNumDescs: *entries, RxRingNumDescs: *entries, TxRingNumDescs: *entries,
	})
	if err != nil {
		return err
	}
	if role != "tx" {
		detach, err := steer(sock, nic.Index)
		if err != nil {
			return err
		}
		defer detach()
		sock.Fill(sock.GetDescs(*entries))
	}
	fmt.Println(`{"ready":true,"version":"github.com/asavie/xdp v0.3.3"}`)
	go answerLoop()
	switch role {
	case "rx":
		receive(sock)
	case "tx":
		send(sock)
	case "forward":
		forward(sock)
	default:
		return fmt.Errorf("no role %q", role)
	}
	publish()
	if s, err := sock.Stats(); err == nil {
		k := s.KernelStats
		count.dropped.Store(k.Rx_dropped + k.Rx_ring_full + k.Rx_fill_ring_empty_descs)
	}
	tell(true)
	return nil
}

func steer(sock *xdp.Socket, ifindex int) (detach func(), err error) {
	prog, err := xdp.NewProgram(1)
	if err != nil {
		return nil, err
	}
	if err := prog.Attach(ifindex); err != nil {
		return nil, err
	}
	return func() { _ = prog.Detach(ifindex) }, prog.Register(0, sock.FD())
}

func answerLoop() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		tell(false)
	}
	stopped.Store(true)
}

func tell(final bool) {
	var now, cpu unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &cpu)
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"ns": now.Nano(), "cpu_ns": cpu.Nano(), "final": final,
		"counts": map[string]uint64{
			"packets": count.packets.Load(), "bytes": count.bytes.Load(), "gaps": count.gaps.Load(),
			"reordered": count.reordered.Load(), "dropped": count.dropped.Load(),
		},
	})
}

// look counts a batch and checks its sequence numbers.
func look(sock *xdp.Socket, descs []xdp.Desc, visit func([]byte)) {
	for i := range descs {
		p := sock.GetFrame(descs[i])
		if visit != nil {
			visit(p)
		}
		if len(p) < probeMin {
			continue
		}
		seq := binary.NativeEndian.Uint64(p[seqAt:])
		if seq >= next {
			own.gaps += seq - next
			next = seq + 1
		} else {
			own.reordered++
		}
		own.packets++
		own.bytes += uint64(len(p))
	}
	endBatch()
}

func idle() {
	publish()
	ts := unix.NsecToTimespec(napNanos)
	// Raw: the sleep is too short for the scheduler to be told.
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

func receive(sock *xdp.Socket) {
	for !stopped.Load() {
		n := min(sock.NumReceived(), *batch)
		if n == 0 {
			idle()
			continue
		}
		descs := sock.Receive(n)
		look(sock, descs, nil)
		sock.Fill(descs)
	}
}

// send uses frames round robin: GetDescs would search all of them for free ones each time.
func send(sock *xdp.Socket) {
	frames := make([]xdp.Desc, *entries)
	for i := range frames {
		frames[i] = xdp.Desc{Addr: uint64(i) * 2048, Len: uint32(*size)}
		copy(sock.GetFrame(frames[i]), probe(*size))
	}
	at, inflight, seq := 0, 0, uint64(0)
	for !stopped.Load() {
		n := min(*batch, *entries-inflight, sock.NumFreeTxSlots(), len(frames)-at)
		for i := range n {
			binary.NativeEndian.PutUint64(sock.GetFrame(frames[at+i])[seqAt:], seq+uint64(i))
		}
		sent := sock.Transmit(frames[at : at+n])
		at = (at + sent) % len(frames)
		seq += uint64(sent)
		inflight += sent
		own.packets += uint64(sent)
		endBatch()
		inflight -= complete(sock)
	}
	for tries := 0; inflight > 0 && tries < 100000; tries++ {
		sock.Transmit(nil)
		inflight -= complete(sock)
	}
}

func complete(sock *xdp.Socket) int {
	n := sock.NumCompleted()
	if n > 0 {
		sock.Complete(n)
	}
	return n
}

// forward sends from the frame that was received into. Complete does not tell which frames came
// back, so they are refilled in the order in which they were sent, which is the kernel's order.
func forward(sock *xdp.Socket) {
	sent := make([]xdp.Desc, 0, 2**entries)
	for !stopped.Load() {
		if done := complete(sock); done > 0 {
			sock.Fill(sent[:done])
			sent = sent[:copy(sent, sent[done:])]
		}
		n := min(sock.NumReceived(), *batch, sock.NumFreeTxSlots())
		if n == 0 {
			if len(sent) > 0 {
				sock.Transmit(nil) // the kernel sends only a part of a batch in one call
			} else {
				idle()
			}
			continue
		}
		descs := sock.Receive(n)
		look(sock, descs, swapMAC)
		sock.Transmit(descs)
		sent = append(sent, descs...)
	}
}

func swapMAC(p []byte) {
	dst := [6]byte(p[0:6])
	copy(p[0:6], p[6:12])
	copy(p[6:12], dst[:])
}

// probe is the packet that every sender sends.
func probe(size int) []byte {
	p := make([]byte, size)
	copy(p, []byte{
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
		0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
		0, 9, 0, 9, 0, 0, 0, 0,
	})
	binary.BigEndian.PutUint16(p[16:], uint16(size-14))
	binary.BigEndian.PutUint16(p[38:], uint16(size-34))
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(p[24:], ^uint16(sum))
	return p
}
