// Package script runs tests of TCP that are written in the language of packetdrill: each says what
// an application does, what the peer sends, and what must be sent to it, and when. A tcp.Mux is
// tested in virtual time, without sockets, devices, or a kernel.
//
//	0    socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
//	+0   bind(3, ..., ...) = 0
//	+0   listen(3, 1) = 0
//	+0   < S 0:0(0) win 32792 <mss 1000>
//	+0   > S. 0:0(0) ack 1 <mss 1460>
//	+0.1 < . 1:1(0) ack 1 win 257
//	+0   accept(3, ..., ...) = 4
//	+0   write(4, ..., 1000) = 1000
//	+0   > P. 1:1001(1000) ack 1
//
// # Times
//
// An event happens at an absolute time in seconds (0.5), some time after the one before (+0.5), at
// any time (*), or within a range (+0.1~+0.2). A call that blocks has a range of another kind,
// 0.1...0.3 or +0...0.2: it begins at the first time and must end at the second, which counts from
// the event before where the first does. Packets may be early or late by --tolerance_usecs.
//
// # Packets
//
// "<" has a segment arrive, ">" expects one: flags (S F R P . U E W A, or - for none; a digit stands
// for A W E as the number that accurate ECN makes of them), range of sequence numbers with the length,
// then ack, win and urg, then options in angle brackets. Flags may have [noecn], [ect0], [ect1], [ce] or
// [tos N] before them. Sequence numbers of what is expected count from the local initial one; those of
// what arrives are meant as they are. Where ">" names no win, ECN field or urg, any will do. <...>
// stands for any options; without brackets there must be none. The order and padding of options do not
// count.
//
// Options: mss N, wscale N, sackOK, sack A:B A:B, TS val N ecr N, FO hex, FO (a request), FO last (the cookie
// that was sent last), nop, eol, and any other as "opt KIND hex". The first "TS val" that is expected fixes where the local
// timestamps begin; the others, and each "ecr" that arrives, count from it.
//
// Payload is a known pattern in both directions: what is read and what is sent is compared with it.
//
// "< icmp unreachable KIND [mtu N] [A:B(N)]" has an ICMP error arrive about a segment that was sent:
// net_unreachable, host_unreachable, protocol_unreachable, port_unreachable, frag_needed,
// admin_prohibited; and "< icmp time_exceeded".
//
// # Calls
//
// socket bind listen accept accept4 connect read recv write send sendto writev shutdown close
// setsockopt getsockopt fcntl ioctl poll; calls.go says which options. The number that socket and
// accept return in the script is the name of the descriptor.
//
// # Commands and assertions
//
// `sysctl -q net.ipv4.tcp_NAME=VALUE` chooses what all sockets begin with. %{ assert EXPR }% compares
// names such as tcpi_snd_cwnd (those of struct tcp_info, as far as Conn.Info knows them) and numbers with
// == != < <= > >=, + - * /, and, or, not.
//
// # Options of a script
//
// Lines at the start: --tolerance_usecs=N, --ip_version=ipv4|ipv6, --mtu=N, --seed=N, --syncookies=0|1,
// --memory=N (bytes of all buffers), --upstream=0|1.
//
// --upstream=1 has a script mean what packetdrill itself takes it to mean: the peer's sequence numbers count from
// its SYN, a segment that is expected may be sent as several of the MSS, nothing is paced, and PSH, the window
// (but for 0) and its scale, the value of a Fast Open cookie and what is sent after the last line are not compared;
// nor are local timestamps without --tcp_ts_tick_usecs=N, ECT of ACKs and of what is sent again, and the form of
// accurate ECN options: what the peer knows of the counters after a segment is. net.ipv4.tcp_ecn_option=0 ends that.
//
// What needs a kernel's internals is missing: other sysctls, cmsgs, epoll, splice, and the code that
// Python would run.
package script

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/wire"
)

// Pos is a place in a script, from 1.
type Pos struct{ Line, Column int }

// Error is a mistake in a script, or what went otherwise than it says.
type Error struct {
	Name string // of the script
	Pos  Pos
	Msg  string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Pos.Line, e.Pos.Column, e.Msg)
}

// Script is a script that was parsed.
type Script struct {
	Name    string
	Options Options
	Events  []Event
}

// Options are the lines that begin with "--".
type Options struct {
	Tolerance time.Duration // 0 is 4 ms
	IPv6      bool
	MTU       int   // 0 is 1500
	Memory    int64 // of all buffers, bytes; 0 is the default of package tcp
	Seed      uint64
	Upstream  bool // written for packetdrill itself; see the package
	Cookies   bool // no half-open connections are kept: each SYN-ACK is a SYN cookie

	Timestamps bool // with Upstream: local timestamps are compared
}

// Event is one line: a time and what happens. Do is *Packet, *ICMP, *Call, *Assertion or *Command.
type Event struct {
	Pos  Pos
	When When
	Do   any
}

// TimeKind says how a time is meant.
type TimeKind uint8

// Values of TimeKind.
const (
	Absolute TimeKind = iota
	Relative
	Any
)

// When is the time of an event.
type When struct {
	Kind     TimeKind
	From, To time.Duration // To is From but in ranges
	End      time.Duration // of a call that blocks, counted as From is
	Blocks   bool
}

// Packet is a segment that arrives or is expected.
type Packet struct {
	In         bool
	ECN        wire.ECN
	HasECN     bool
	TOS        uint8 // with HasTOS: DSCP and ECN
	HasTOS     bool
	Flags      wire.TCPFlags
	AE         bool
	Seq        uint32
	Len        uint32
	Ack        uint32
	Window     uint16
	Urgent     uint16
	HasWindow  bool
	HasUrgent  bool
	Options    []Option
	AnyOptions bool // <...>
}

// Option is a TCP option as a script has it.
type Option struct {
	Kind   uint8
	Value  uint32 // mss, wscale, TS val
	Echo   uint32 // TS ecr
	Blocks []wire.SACKBlock
	Data   []byte // FO, opt
	Last   bool   // FO last
}

// ICMP is an ICMP error that arrives.
type ICMP struct {
	Kind ip.ErrorKind
	MTU  int
	Seq  uint32 // of the segment that it is about
}

// Call is what the application does.
type Call struct {
	Name   string
	Args   []Value
	Result int64
	Errno  string // name; "" for none
	Any    bool   // the result is "..."
}

// Assertion is what must be true of a connection.
type Assertion struct{ Tests []expr }

// Command is the text between backquotes.
type Command struct{ Text string }
